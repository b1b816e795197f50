package redisconn

import (
	"errors"
	"fmt"
	"maps"
	"net"
	neturl "net/url"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"dibs/internal/address"
	"dibs/internal/tlsfiles"
)

// ErrURL is wrapped by every refusal of a Redis URL. No error quotes part of
// a password, which a typo may have moved anywhere in the URL.
var ErrURL = errors.New("redisconn: bad redis url")

var errQuery = fmt.Errorf(
	"%w: its query can't be read: options are name=value, separated by &, with values percent-encoded", ErrURL)

// usedOptions are the options of every URL. Other options of go-redis would
// make it resend commands, or use a protocol that Dibs is not tested with.
var usedOptions = []string{
	"client_name", "conn_max_idle_time", "conn_max_lifetime", "conn_max_lifetime_jitter", "db",
	"dial_timeout", "max_active_conns", "max_concurrent_dials", "max_idle_conns", "min_idle_conns",
	"pool_fifo", "pool_size", "pool_timeout", "read_timeout", "skip_verify", optionPolicy,
	tlsfiles.CA, tlsfiles.Cert, tlsfiles.Key, "write_timeout",
}

const (
	optionCluster = "cluster" // whether the one address is a cluster's
	optionTrue    = "true"

	// optionPolicy vouches for the maxmemory-policy of servers that hide it.
	optionPolicy = "maxmemory_policy"
	noeviction   = "noeviction"
)

// ownOptions are the options unknown to go-redis.
type ownOptions struct {
	files           tlsfiles.Files
	cluster, policy string
}

type target struct {
	data  *redis.Options // of the first server; behind Sentinels, without its address
	own   ownOptions
	addrs []string

	sentinels *sentinels // nil: the addresses are of Redis itself
}

func load(url string) (*target, error) {
	t, err := parse(url)
	if err != nil || len(t.own.files) == 0 {
		return t, err
	}
	if err := t.own.files.Apply(t.data.TLSConfig); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return t, nil
}

// parse parses a URL, see Connect.
func parse(url string) (*target, error) {
	if err := address.CheckURL(url); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	if rest, isSentinel := strings.CutPrefix(url, sentinelScheme); isSentinel {
		return parseSentinel(rest)
	}
	hosts, query, err := splitHosts(url)
	if err != nil {
		return nil, err
	}
	options, err := parseQuery(query, slices.Concat(usedOptions, []string{optionCluster}))
	if err != nil {
		return nil, err
	}
	t := &target{}
	if err := t.readServer(hosts[0], options); err != nil {
		return nil, err
	}
	t.addrs = []string{t.data.Addr}
	for _, host := range hosts[1:] {
		addr, err := clusterAddr(host, t.data)
		if err != nil {
			return nil, err
		}
		t.addrs = append(t.addrs, addr)
	}
	if t.isCluster() && t.data.DB != 0 {
		return nil, errClusterDB
	}
	return t, nil
}

var errClusterDB = fmt.Errorf("%w: a cluster has only database 0", ErrURL)

func (t *target) isCluster() bool {
	return t.sentinels == nil && (t.own.cluster == optionTrue || len(t.addrs) > 1)
}

// splitHosts splits a URL into its query and its hosts. The
// first host includes the scheme.
func splitHosts(url string) (hosts []string, query string, err error) {
	for host := range strings.SplitSeq(url, ",") {
		host, options, found := strings.Cut(strings.TrimSpace(host), "?")
		hosts = append(hosts, host)
		if found && query != "" {
			return nil, "", fmt.Errorf("%w: options may stand behind one host only", ErrURL)
		}
		if found {
			query = options
		}
	}
	return hosts, query, nil
}

// parseQuery parses options, each of which must be in used.
// Others are not quoted: they may be part of a password.
func parseQuery(query string, used []string) (neturl.Values, error) {
	options, err := neturl.ParseQuery(query)
	if err != nil {
		return nil, errQuery
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		switch {
		case !slices.Contains(used, name):
			return nil, fmt.Errorf("%w: has an option that is none of these: %s", ErrURL, strings.Join(used, ", "))
		case len(options[name]) > 1:
			return nil, fmt.Errorf("%w: option %s is given twice", ErrURL, name)
		case options.Get(name) == "":
			return nil, fmt.Errorf("%w: option %s has no value", ErrURL, name)
		}
	}
	return options, nil
}

// readServer parses the options and the URL of a server without its query.
func (t *target) readServer(url string, options neturl.Values) (err error) {
	t.own = ownOptions{cluster: options.Get(optionCluster), policy: options.Get(optionPolicy)}
	options.Del(optionCluster)
	options.Del(optionPolicy)
	t.own.files = tlsfiles.Take(options.Get, options.Del)
	switch {
	case !slices.Contains([]string{"", optionTrue, "false"}, t.own.cluster):
		return fmt.Errorf("%w: option %s must be true or false", ErrURL, optionCluster)
	case t.own.policy != "" && t.own.policy != noeviction:
		return fmt.Errorf("%w: option %s must be %s", ErrURL, optionPolicy, noeviction)
	}
	t.data, err = parseHost(url + "?" + options.Encode())
	if err == nil && len(t.own.files) > 0 && t.data.TLSConfig == nil {
		err = fmt.Errorf("%w: options %s go with TLS, as by rediss://", ErrURL, strings.Join(tlsfiles.Options, ", "))
	}
	return err
}

func parseHost(url string) (*redis.Options, error) {
	if !strings.HasPrefix(url, "redis://") && !strings.HasPrefix(url, "rediss://") {
		return nil, fmt.Errorf("%w: must begin with redis://, rediss:// or redis+sentinel://", ErrURL)
	}
	opts, err := redis.ParseURL(url)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %s", ErrURL, wrongIn(url))
	case opts.PoolSize < 0:
		return nil, fmt.Errorf("%w: option pool_size must be at least 1", ErrURL)
	case opts.ReadTimeout != 0 && opts.ReadTimeout < replyTimeout, opts.WriteTimeout != 0 && opts.WriteTimeout < replyTimeout:
		return nil, fmt.Errorf("%w: options read_timeout and write_timeout must be at least %s:"+
			" Redis may wait that long for its disk", ErrURL, replyTimeout)
	}
	return opts, nil
}

// clusterAddr parses a further host of a cluster: host:port, or
// a URL consistent with the first.
func clusterAddr(host string, first *redis.Options) (string, error) {
	scheme, _, hasScheme := strings.Cut(host, "://")
	if !hasScheme {
		scheme = "redis"
		host = "redis://" + host
	}
	opts, err := parseHost(host)
	switch {
	case err != nil:
		return "", err
	case host == "redis://":
		return "", fmt.Errorf("%w: a host is empty", ErrURL)
	case opts.DB != 0:
		return "", errClusterDB
	case hasScheme && (scheme == "rediss") != (first.TLSConfig != nil):
		return "", fmt.Errorf("%w: all hosts of a cluster have the scheme of the first", ErrURL)
	}
	return opts.Addr, nil
}

// wrongIn describes an error in a URL. go-redis's error may quote a password.
func wrongIn(url string) string {
	scheme, _, _ := strings.Cut(url, "://")
	_, query, _ := strings.Cut(url, "?")
	for option := range strings.SplitSeq(query, "&") { // parseQuery has validated it
		if _, err := redis.ParseURL(scheme + "://host?" + option); err != nil {
			name, _, _ := strings.Cut(option, "=")
			return "option " + name + " has a value that it can't have: numbers are whole, durations such as 5s," +
				" switches true or false, and skip_verify goes with TLS alone, as by rediss://"
		}
	}
	return "can't be used: behind the host stands the number of a database, if anything"
}

const sentinelScheme = "redis+sentinel://"

// The values of the Sentinel option tls.
const (
	tlsNodes = "nodes" // the Redis servers; Sentinels are reached in clear
	tlsAll   = "all"
)

var sentinelOptions = []string{"sentinel_password", "sentinel_username", "tls"}

type sentinels struct {
	master, user, password string
	inClear                bool // although the Redis servers use TLS
}

// parseSentinel parses user:pw@host:port,host:port/master-name/db?options.
// The hosts are Sentinels; user and password are for the Redis servers.
func parseSentinel(rest string) (*target, error) {
	rest, query, _ := strings.Cut(rest, "?")
	options, err := parseQuery(query, slices.Concat(usedOptions, sentinelOptions))
	if err != nil {
		return nil, err
	}
	authority, path, _ := strings.Cut(rest, "/")
	at := strings.LastIndex(authority, "@") + 1
	master, db, _ := strings.Cut(path, "/")
	if master == "" {
		return nil, fmt.Errorf("%w: names no master: it ends with /master-name or /master-name/db", ErrURL)
	}
	t := &target{sentinels: &sentinels{
		master: master, user: options.Get("sentinel_username"), password: options.Get("sentinel_password"),
	}}
	for addr := range strings.SplitSeq(authority[at:], ",") {
		addr = strings.TrimSpace(addr)
		host, port, err := net.SplitHostPort(addr)
		if err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("%w: a Sentinel has no host:port", ErrURL)
		}
		t.addrs = append(t.addrs, addr)
	}
	scheme := "redis://"
	switch options.Get("tls") {
	case "":
	case tlsNodes, tlsAll:
		scheme = "rediss://"
		t.sentinels.inClear = options.Get("tls") == tlsNodes
	default:
		return nil, fmt.Errorf("%w: option tls must be %s or %s", ErrURL, tlsNodes, tlsAll)
	}
	for _, name := range sentinelOptions {
		options.Del(name)
	}
	if err := t.readServer(scheme+authority[:at]+t.addrs[0]+"/"+db, options); err != nil {
		return nil, err
	}
	return t, nil
}
