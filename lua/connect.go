package lua

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	neturl "net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"dibs/internal/address"
	"dibs/internal/roots"
)

// errURL is wrapped by every refusal of a Redis URL.
var errURL = errors.New("lua: bad redis url")

const (
	dialTimeout  = 2 * time.Second
	replyTimeout = 3 * time.Second
	// poolSize is the most connections. Claims share calls and need few. Each stream that is read needs one.
	poolSize = 64 + PartitionsMax
)

// Connect makes a client for a redis:// or rediss:// URL, or for a redis+sentinel:// URL, see connectSentinel. Several hosts,
// comma-separated, are a cluster. The query may hold options of go-redis, see usedOptions; any other option is refused. The client
// never sends a command twice by itself, as go-redis does by default: Dibs must tell a claim that is sent twice from two claims.
// Connect does not open a connection.
func Connect(url string) (redis.UniversalClient, error) { return connect(url, nil) }

// ConnectRenewed is Connect for a URL whose user and password may change: each new connection signs in with those that it has by then.
// now must return URLs that Connect accepts.
func ConnectRenewed(now func() string) (redis.UniversalClient, error) {
	return connect(now(), func() (user, password string) { return credentials(now()) })
}

// CheckURL returns the error that Connect would.
func CheckURL(url string) error {
	rdb, err := Connect(url)
	if err == nil {
		_ = rdb.Close() // it has no connection
	}
	return err
}

// credentials are the user and password of a URL that Connect accepts.
func credentials(url string) (user, password string) {
	first, _, _ := strings.Cut(url, ",")
	_, authority, _ := strings.Cut(first, "://")
	authority, _, _ = strings.Cut(authority, "/")
	info := authority[:strings.LastIndex(authority, "@")+1]
	u, err := neturl.Parse("redis://" + info + "host")
	if err != nil {
		return "", ""
	}
	password, _ = u.User.Password()
	return u.User.Username(), password
}

func connect(url string, renewed func() (user, password string)) (redis.UniversalClient, error) {
	if err := address.CheckURL(url); err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	if rest, sentinel := strings.CutPrefix(url, sentinelScheme); sentinel {
		return connectSentinel(rest, renewed)
	}
	hosts, query, err := splitHosts(url)
	if err != nil {
		return nil, err
	}
	query, ca := takeCA(query)
	first, err := parseHost(hosts[0] + query)
	if err == nil {
		err = trust(first, ca)
	}
	if err != nil {
		return nil, err
	}
	u := optionsOf(first)
	u.CredentialsProvider = renewed
	if len(hosts) == 1 {
		return redis.NewUniversalClient(u), nil
	}
	if first.DB != 0 {
		return nil, fmt.Errorf("%w: a cluster has only database 0", errURL)
	}
	for _, host := range hosts[1:] {
		addr, err := clusterAddr(host, first)
		if err != nil {
			return nil, err
		}
		u.Addrs = append(u.Addrs, addr)
	}
	cluster := redis.NewClusterClient(u.Cluster())
	followFailovers(cluster)
	return cluster, nil
}

// takeCA takes the option tls_ca, which go-redis does not know, out of a query that is checked.
func takeCA(query string) (rest, ca string) {
	options, err := neturl.ParseQuery(strings.TrimPrefix(query, "?"))
	ca = options.Get(optionCA)
	if err != nil || ca == "" {
		return query, ""
	}
	options.Del(optionCA)
	return "?" + options.Encode(), ca
}

// trust has a client trust the authority in a file, and no other; "" is those of the machine.
func trust(o *redis.Options, ca string) error {
	if ca == "" {
		return nil
	}
	if o.TLSConfig == nil {
		return fmt.Errorf("%w: option %s goes with TLS, as by rediss://", errURL, optionCA)
	}
	pool, err := roots.Read(ca)
	if err != nil {
		return fmt.Errorf("%w: option %s: %w", errURL, optionCA, err)
	}
	o.TLSConfig.RootCAs = pool
	return nil
}

// splitHosts splits a URL into its hosts, of which the first has the scheme, and the query, which keeps its question mark.
func splitHosts(url string) (hosts []string, query string, err error) {
	for host := range strings.SplitSeq(url, ",") {
		host, options, found := strings.Cut(strings.TrimSpace(host), "?")
		hosts = append(hosts, host)
		if found && query != "" {
			return nil, "", fmt.Errorf("%w: options may stand behind one host only", errURL)
		}
		if found {
			query = "?" + options
		}
	}
	return hosts, query, checkQuery(strings.TrimPrefix(query, "?"), usedOptions)
}

// optionCA is the file of a private authority that the server's certificate comes from.
const optionCA = "tls_ca"

// usedOptions are the options that Connect uses. With the others that go-redis knows, commands would be sent twice, or in a protocol
// that Dibs is not tested with.
var usedOptions = []string{
	"client_name", "conn_max_idle_time", "conn_max_lifetime", "conn_max_lifetime_jitter", "db", "dial_timeout", "max_active_conns",
	"max_concurrent_dials", "max_idle_conns", "min_idle_conns", "pool_fifo", "pool_size", "pool_timeout", "read_timeout", "skip_verify",
	optionCA, "write_timeout",
}

// unusedOptions are those that people may know from go-redis.
var unusedOptions = []string{
	"idle_check_frequency", "idle_timeout", "master_name", "max_conn_age", "max_redirects", "max_retries", "max_retry_backoff",
	"min_retry_backoff", "pipeline_pool_size", "pipeline_read_buffer_size", "pipeline_write_buffer_size", "protocol", "read_only",
	"route_by_latency", "route_randomly", "sentinel_password", "sentinel_username",
}

// errQuery refuses a query that can't be read. What the parser says of it may quote a password.
var errQuery = fmt.Errorf("%w: its query can't be read: options are name=value, separated by &, with values percent-encoded", errURL)

func checkQuery(query string, used []string) error {
	options, err := neturl.ParseQuery(query)
	if err != nil {
		return errQuery
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		switch {
		case slices.Contains(unusedOptions, name) && !slices.Contains(used, name):
			return fmt.Errorf("%w: option %q is not used; those that are: %s", errURL, name, strings.Join(used, ", "))
		case !slices.Contains(used, name): // it may be part of a password
			return fmt.Errorf("%w: has an option that there is not; those that are used: %s", errURL, strings.Join(used, ", "))
		case len(options[name]) > 1:
			return fmt.Errorf("%w: option %s is given twice", errURL, name)
		case options.Get(name) == "":
			return fmt.Errorf("%w: option %s has no value", errURL, name)
		}
	}
	return nil
}

// parseHost reads the URL of one host.
func parseHost(url string) (*redis.Options, error) {
	if !strings.HasPrefix(url, "redis://") && !strings.HasPrefix(url, "rediss://") {
		return nil, fmt.Errorf("%w: must begin with redis://, rediss:// or redis+sentinel://", errURL)
	}
	opts, err := redis.ParseURL(url)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %s", errURL, wrongIn(url))
	case opts.PoolSize < 0:
		return nil, fmt.Errorf("%w: option pool_size must be at least 1", errURL)
	case opts.ReadTimeout != 0 && opts.ReadTimeout < replyTimeout, opts.WriteTimeout != 0 && opts.WriteTimeout < replyTimeout:
		return nil, fmt.Errorf("%w: options read_timeout and write_timeout must be at least %s: Redis may wait that long for its disk",
			errURL, replyTimeout)
	}
	return opts, nil
}

// optionsOf are the options of a client: those of the URL, and Dibs' defaults for the others.
func optionsOf(o *redis.Options) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
		ClientName: o.ClientName, DisableIdentity: true, Protocol: 2,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout:  cmp.Or(o.DialTimeout, dialTimeout),
		ReadTimeout:  cmp.Or(o.ReadTimeout, replyTimeout),
		WriteTimeout: cmp.Or(o.WriteTimeout, replyTimeout),
		PoolSize:     cmp.Or(o.PoolSize, poolSize),
		PoolTimeout:  o.PoolTimeout, PoolFIFO: o.PoolFIFO,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns, MaxConcurrentDials: o.MaxConcurrentDials,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// clusterAddr reads a further host of a cluster: host:port, or a URL that does not contradict the first one.
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
		return "", fmt.Errorf("%w: a host is empty", errURL)
	case opts.DB != 0:
		return "", fmt.Errorf("%w: a cluster has only database 0", errURL)
	case hasScheme && (scheme == "rediss") != (first.TLSConfig != nil):
		return "", fmt.Errorf("%w: all hosts of a cluster have the scheme of the first", errURL)
	}
	return opts.Addr, nil
}

// wrongIn says what of a URL can't be used. What go-redis says may quote a password.
func wrongIn(url string) string {
	_, query, _ := strings.Cut(url, "?")
	options, _ := neturl.ParseQuery(query) // it was read before
	for _, name := range slices.Sorted(maps.Keys(options)) {
		alone := neturl.Values{name: options[name]}
		if _, err := redis.ParseURL("rediss://host?" + alone.Encode()); err != nil {
			return "option " + name + " has a value that it can't have: numbers are whole, durations such as 5s, switches true or false"
		}
	}
	if _, found := options["skip_verify"]; found && !strings.HasPrefix(url, "rediss://") {
		return "option skip_verify goes with TLS, as by rediss://"
	}
	return "can't be used: behind the host stands the number of a database, if anything"
}
