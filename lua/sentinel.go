package lua

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	neturl "net/url"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

const sentinelScheme = "redis+sentinel://"

// sentinelOptions are the options that a redis+sentinel:// URL has besides usedOptions: how to sign in to the Sentinels, and which
// servers are reached by TLS.
var sentinelOptions = []string{"sentinel_password", "sentinel_username", "tls"}

// What the option tls can be.
const (
	tlsNodes = "nodes" // the Redis servers; Sentinels are reached in clear
	tlsAll   = "all"
)

// connectSentinel makes a client for the primary that Sentinels name: user:pw@host:port,host:port/master-name/db?options. The hosts
// are Sentinels, user and password those of the Redis servers. Every new connection asks where the primary is, and all connections
// to another server are closed when Sentinels promote one.
func connectSentinel(rest string, how connecting) (redis.UniversalClient, error) {
	rest, query, _ := strings.Cut(rest, "?")
	if err := checkQuery(query, slices.Concat(usedOptions, sentinelOptions)); err != nil {
		return nil, err
	}
	options, err := neturl.ParseQuery(query)
	if err != nil {
		return nil, errQuery
	}
	authority, path, _ := strings.Cut(rest, "/")
	user := ""
	hosts := authority
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user = authority[:at+1]
		hosts = authority[at+1:]
	}
	master, db, _ := strings.Cut(path, "/")
	if master == "" {
		return nil, fmt.Errorf("%w: names no master: it ends with /master-name or /master-name/db", ErrURL)
	}
	addrs, err := sentinelAddrs(hosts)
	if err != nil {
		return nil, err
	}
	scheme, err := schemeOf(options.Get("tls"))
	if err != nil {
		return nil, err
	}
	encrypted := options.Get("tls")
	sentinelUser := options.Get("sentinel_username")
	sentinelPassword := options.Get("sentinel_password")
	own, err := takeOwn(options)
	if err != nil {
		return nil, err
	}
	for _, name := range sentinelOptions {
		options.Del(name)
	}
	data, err := parseHost(scheme + user + addrs[0] + "/" + db + "?" + options.Encode())
	if err == nil {
		err = use(data, own.files)
	}
	if err != nil {
		return nil, err
	}
	u := optionsOf(data, how)
	u.Addrs = addrs
	u.MasterName = master
	u.SentinelUsername = sentinelUser
	u.SentinelPassword = sentinelPassword
	if u.TLSConfig != nil {
		u.TLSConfig.ServerName = "" // each server has its own
	}
	if encrypted == tlsNodes {
		u.Dialer = dialNodesByTLS(u)
	}
	return redis.NewFailoverClient(u.Failover()), nil
}

func schemeOf(encrypted string) (string, error) {
	switch encrypted {
	case "":
		return "redis://", nil
	case tlsNodes, tlsAll:
		return "rediss://", nil
	default:
		return "", fmt.Errorf("%w: option tls must be %s or %s", ErrURL, tlsNodes, tlsAll)
	}
}

func sentinelAddrs(hosts string) (addrs []string, err error) {
	for addr := range strings.SplitSeq(hosts, ",") {
		addr = strings.TrimSpace(addr)
		host, port, err := net.SplitHostPort(addr)
		if err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("%w: a Sentinel has no host:port", ErrURL)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// dialNodesByTLS dials Sentinels in clear and all other servers by TLS. The client looks for further Sentinels by itself; they are
// known by the ports of those in the URL.
func dialNodesByTLS(u *redis.UniversalOptions) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var ports []string
	for _, addr := range u.Addrs {
		_, port, _ := net.SplitHostPort(addr) // sentinelAddrs has read it
		ports = append(ports, port)
	}
	dialer := &net.Dialer{Timeout: u.DialTimeout}
	encrypted := &tls.Dialer{NetDialer: dialer, Config: u.TLSConfig}
	u.TLSConfig = nil
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if _, port, err := net.SplitHostPort(addr); err == nil && slices.Contains(ports, port) {
			return dialer.DialContext(ctx, network, addr)
		}
		return encrypted.DialContext(ctx, network, addr)
	}
}
