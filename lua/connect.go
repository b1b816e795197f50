package lua

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	neturl "net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"dibs/internal/address"
	"dibs/internal/tlsfiles"
)

// ErrURL is wrapped by every refusal of a Redis URL.
var ErrURL = errors.New("lua: bad redis url")

const (
	dialTimeout  = 2 * time.Second
	replyTimeout = 3 * time.Second
	// poolSize is the most connections. Claims share calls and need few. Each stream that is read needs one.
	poolSize = 64 + PartitionsMax
)

// Connect makes a client for a redis:// or rediss:// URL, or for a redis+sentinel:// URL, see
// connectSentinel. Several hosts, comma-separated, are a cluster, and so is one with the option
// cluster=true; Detect finds one without it. The query may hold options of go-redis, see
// usedOptions; any other option is refused. The client never sends a command twice by itself, as
// go-redis does by default: Dibs must tell a claim that is sent twice from two claims.
// Connect does not open a connection.
func Connect(url string) (redis.UniversalClient, error) { return connectTo(url, connecting{}) }

func renewedBy(now func() string) func() (user, password string) {
	return func() (user, password string) { return credentials(now()) }
}

// connecting is how connections are made.
type connecting struct {
	renewed   func() (user, password string) // nil: as the URL says
	isCluster bool                           // whatever the URL says
	check     func(ctx context.Context, conn *redis.Conn) error
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

// errClusterNode refuses one address of a cluster.
var errClusterNode = fmt.Errorf("%w: is one address of a cluster: add the option %s=true", ErrURL, optionCluster)

// Detect is Connect to what is there: where the one server of a URL is a node of a cluster, to the
// cluster. User and password may change: each new connection signs in with those of now, which must
// return URLs that Connect accepts. A server that does not answer is taken for what the URL says; call CheckTopology when
// it is there. Each connection is checked to provide the durability, as far as that depends on the
// settings of a server.
func Detect(ctx context.Context, now func() string, d Durability) (redis.UniversalClient, error) {
	how := connecting{renewed: renewedBy(now), check: checkConnection(d)}
	rdb, err := connectTo(now(), how)
	if err != nil || !errors.Is(CheckTopology(ctx, rdb, now()), errClusterNode) {
		return rdb, err
	}
	_ = rdb.Close()
	how.isCluster = true
	return connectTo(now(), how)
}

// CheckTopology refuses a client of one server where that is a node of a cluster: it would answer
// for a part of the keys. The option cluster=false is for a cluster of one node that is not reached
// by the address that it tells. Errors: that refusal, ErrURL, or those of Redis.
func CheckTopology(ctx context.Context, rdb redis.UniversalClient, url string) error {
	one, isOne := rdb.(*redis.Client)
	if !isOne || ownOf(url).cluster != "" {
		return nil
	}
	info, err := Info(ctx, one, "cluster")
	if err == nil && info["cluster_enabled"] == "" { // a managed server that does not say
		var slots []redis.ClusterSlot
		slots, err = one.ClusterSlots(ctx).Result() //nolint:staticcheck // Redis before 7.0 has no CLUSTER SHARDS
		if len(slots) > 0 {
			return errClusterNode
		}
		err = classifyError("cluster slots", err)
	}
	var refused redis.Error
	switch {
	case info["cluster_enabled"] == "1":
		return errClusterNode
	case err != nil && !errors.As(err, &refused): // no server but one of a cluster has an answer for everybody
		return err
	}
	return nil
}

// Policy is the maxmemory-policy of a server, by its INFO or its settings; of one that hides both,
// what the URL says of it. "" is one that nobody says. Errors: those of Redis.
func Policy(ctx context.Context, node redis.UniversalClient, info map[string]string, url string) (string, error) {
	if policy := info["maxmemory_policy"]; policy != "" {
		return policy, nil
	}
	settings, err := node.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil && !isRefusal(err) {
		return "", fmt.Errorf("lua: CONFIG GET: %w", err)
	}
	return cmp.Or(settings["maxmemory-policy"], ownOf(url).policy), nil
}

// ownOptions are options of a URL that go-redis does not know.
type ownOptions struct {
	files           tlsfiles.Files
	cluster, policy string
}

// takeOwn takes them out of options.
func takeOwn(options neturl.Values) (own ownOptions, err error) {
	own = ownOptions{cluster: options.Get(optionCluster), policy: options.Get(optionPolicy)}
	options.Del(optionCluster)
	options.Del(optionPolicy)
	own.files = tlsfiles.Take(options.Get, options.Del)
	switch {
	case own.cluster != "" && own.cluster != optionTrue && own.cluster != "false":
		err = fmt.Errorf("%w: option %s must be true or false", ErrURL, optionCluster)
	case own.policy != "" && own.policy != Noeviction:
		err = fmt.Errorf("%w: option %s must be %s", ErrURL, optionPolicy, Noeviction)
	}
	return own, err
}

// ownOf are those of a URL that Connect accepts.
func ownOf(url string) ownOptions {
	_, query, _ := strings.Cut(url, "?")
	if !strings.HasPrefix(url, sentinelScheme) {
		query, _, _ = strings.Cut(query, ",") // further hosts
	}
	options, _ := neturl.ParseQuery(query) // Connect reads it
	own, _ := takeOwn(options)
	return own
}

func connectTo(url string, how connecting) (redis.UniversalClient, error) {
	if err := address.CheckURL(url); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	if rest, sentinel := strings.CutPrefix(url, sentinelScheme); sentinel {
		return connectSentinel(rest, how)
	}
	hosts, query, err := splitHosts(url)
	if err != nil {
		return nil, err
	}
	options, err := neturl.ParseQuery(strings.TrimPrefix(query, "?"))
	if err != nil {
		return nil, errQuery
	}
	own, err := takeOwn(options)
	if err != nil {
		return nil, err
	}
	isCluster := how.isCluster || own.cluster == optionTrue || len(hosts) > 1
	first, err := parseHost(hosts[0] + "?" + options.Encode())
	if err == nil {
		err = use(first, own.files)
	}
	if err != nil {
		return nil, err
	}
	u := optionsOf(first, how)
	if !isCluster {
		return redis.NewUniversalClient(u), nil
	}
	if first.DB != 0 {
		return nil, fmt.Errorf("%w: a cluster has only database 0", ErrURL)
	}
	if u.TLSConfig != nil {
		u.Dialer = dialNodes(u)
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

// use has a client use the certificates in files.
func use(o *redis.Options, files tlsfiles.Files) error {
	if len(files) == 0 {
		return nil
	}
	if o.TLSConfig == nil {
		return fmt.Errorf("%w: options %s go with TLS, as by rediss://", ErrURL, strings.Join(tlsfiles.Options, ", "))
	}
	if err := files.Apply(o.TLSConfig); err != nil {
		return fmt.Errorf("%w: %w", ErrURL, err)
	}
	return nil
}

// dialNodes dials each node of a cluster by TLS in its own name. One that the cluster tells by its
// IP address may show a certificate for the host of the URL instead: some managed clusters have one
// for all nodes.
func dialNodes(u *redis.UniversalOptions) func(ctx context.Context, network, addr string) (net.Conn, error) {
	base := u.TLSConfig
	dial := func(ctx context.Context, network, addr, name string) (net.Conn, error) {
		config := base.Clone()
		config.ServerName = name
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: u.DialTimeout}, Config: config}
		return dialer.DialContext(ctx, network, addr)
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, addr, host)
		var otherName x509.HostnameError
		if errors.As(err, &otherName) && net.ParseIP(host) != nil && host != base.ServerName {
			return dial(ctx, network, addr, base.ServerName)
		}
		return conn, err
	}
}

// splitHosts splits a URL into its hosts, of which the first has the scheme, and the query, which keeps its question mark.
func splitHosts(url string) (hosts []string, query string, err error) {
	for host := range strings.SplitSeq(url, ",") {
		host, options, found := strings.Cut(strings.TrimSpace(host), "?")
		hosts = append(hosts, host)
		if found && query != "" {
			return nil, "", fmt.Errorf("%w: options may stand behind one host only", ErrURL)
		}
		if found {
			query = "?" + options
		}
	}
	return hosts, query, checkQuery(strings.TrimPrefix(query, "?"), slices.Concat(usedOptions, []string{optionCluster}))
}

// optionCluster says whether the one address of a URL is that of a cluster.
const (
	optionCluster = "cluster"
	optionTrue    = "true"
)

// optionPolicy vouches for the maxmemory-policy of servers that hide it. Noeviction is the one that
// Dibs needs.
const (
	optionPolicy = "maxmemory_policy"
	Noeviction   = "noeviction"
)

// usedOptions are the options that Connect uses. With the others that go-redis knows, commands would be sent twice, or in a protocol
// that Dibs is not tested with.
var usedOptions = []string{
	"client_name", "conn_max_idle_time", "conn_max_lifetime", "conn_max_lifetime_jitter", "db", "dial_timeout", "max_active_conns",
	"max_concurrent_dials", "max_idle_conns", "min_idle_conns", "pool_fifo", "pool_size", "pool_timeout", "read_timeout", "skip_verify",
	optionPolicy,
	tlsfiles.CA, tlsfiles.Cert, tlsfiles.Key, "write_timeout",
}

// unusedOptions are those that people may know from go-redis.
var unusedOptions = []string{
	"idle_check_frequency", "idle_timeout", "master_name", "max_conn_age", "max_redirects", "max_retries", "max_retry_backoff",
	"min_retry_backoff", "pipeline_pool_size", "pipeline_read_buffer_size", "pipeline_write_buffer_size", "protocol", "read_only",
	"route_by_latency", "route_randomly", "sentinel_password", "sentinel_username",
}

// errQuery refuses a query that can't be read. What the parser says of it may quote a password.
var errQuery = fmt.Errorf("%w: its query can't be read: options are name=value, separated by &, with values percent-encoded", ErrURL)

func checkQuery(query string, used []string) error {
	options, err := neturl.ParseQuery(query)
	if err != nil {
		return errQuery
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		switch {
		case slices.Contains(unusedOptions, name) && !slices.Contains(used, name):
			return fmt.Errorf("%w: option %q is not used; those that are: %s", ErrURL, name, strings.Join(used, ", "))
		case !slices.Contains(used, name): // it may be part of a password
			return fmt.Errorf("%w: has an option that there is not; those that are used: %s", ErrURL, strings.Join(used, ", "))
		case len(options[name]) > 1:
			return fmt.Errorf("%w: option %s is given twice", ErrURL, name)
		case options.Get(name) == "":
			return fmt.Errorf("%w: option %s has no value", ErrURL, name)
		}
	}
	return nil
}

// parseHost reads the URL of one host.
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
		return nil, fmt.Errorf("%w: options read_timeout and write_timeout must be at least %s: Redis may wait that long for its disk",
			ErrURL, replyTimeout)
	}
	return opts, nil
}

// optionsOf are the options of a client: those of the URL, and Dibs' defaults for the others.
func optionsOf(o *redis.Options, how connecting) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
		CredentialsProvider: how.renewed, OnConnect: how.check,
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
		return "", fmt.Errorf("%w: a host is empty", ErrURL)
	case opts.DB != 0:
		return "", fmt.Errorf("%w: a cluster has only database 0", ErrURL)
	case hasScheme && (scheme == "rediss") != (first.TLSConfig != nil):
		return "", fmt.Errorf("%w: all hosts of a cluster have the scheme of the first", ErrURL)
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
