package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	dialTimeout  = 2 * time.Second
	replyTimeout = 3 * time.Second
	// poolSize is the connection limit. Each stream being read needs
	// one, and there may be 256. Claims share calls and need few.
	poolSize = 64 + 256
)

// Connect makes a client for a redis://, rediss:// or redis+sentinel:// URL;
// for the last, see parseSentinel. Several hosts, separated by commas, are a
// cluster, as is one with the option cluster=true. The query may hold
// usedOptions; any other option is an error.
func Connect(url string) (redis.UniversalClient, error) {
	t, err := load(url)
	if err != nil {
		return nil, err
	}
	return t.open(connecting{isCluster: t.isCluster()}), nil
}

// CheckURL returns the error that Connect would.
func CheckURL(url string) error {
	_, err := load(url)
	return err
}

// Detect is Connect, except that it connects to the whole cluster if the
// URL's one server is a cluster node. If that server does not answer, Detect
// trusts the URL. Call CheckTopology once it does.
//
// now returns the URL with the current password. Each new
// connection signs in with it.
func Detect(ctx context.Context, now func() string, fsync Fsync) (redis.UniversalClient, error) {
	url := now()
	t, err := load(url)
	if err != nil {
		return nil, err
	}
	how := connecting{isCluster: t.isCluster(), check: checkConnection(fsync), credentials: func() (user, password string) {
		t, err := parse(now())
		if err != nil {
			return "", ""
		}
		return t.data.Username, t.data.Password
	}}
	rdb := t.open(how)
	if !errors.Is(CheckTopology(ctx, rdb, url), errClusterNode) {
		return rdb, nil
	}
	_ = rdb.Close()
	if t.data.DB != 0 {
		return nil, errClusterDB
	}
	how.isCluster = true
	return t.open(how), nil
}

var errClusterNode = fmt.Errorf("%w: is one address of a cluster: add the option %s=true", ErrURL, optionCluster)

// CheckTopology returns an error if a single-server client is connected to a
// cluster node, which serves only some of the keys. The option cluster=false
// permits it, for a one-node cluster that is not reached at the address it
// announces. Errors: that refusal, ErrURL, or those of Redis.
func CheckTopology(ctx context.Context, rdb redis.UniversalClient, url string) error {
	one, isOne := rdb.(*redis.Client)
	t, err := parse(url)
	if err != nil || !isOne || t.own.cluster != "" {
		return err
	}
	info, err := Info(ctx, one, "cluster")
	if err == nil && info["cluster_enabled"] == "" { // a managed server that does not report it
		var slots []redis.ClusterSlot
		slots, err = one.ClusterSlots(ctx).Result() //nolint:staticcheck // Redis before 7.0 has no CLUSTER SHARDS
		if len(slots) > 0 {
			return errClusterNode
		}
	}
	var refused redis.Error
	switch {
	case info["cluster_enabled"] == "1":
		return errClusterNode
	case err != nil && !errors.As(err, &refused): // a single server may refuse, a node never does
		return fmt.Errorf("redisconn: topology: %w", err)
	}
	return nil
}

type connecting struct {
	isCluster   bool
	credentials func() (user, password string) // nil: the URL's own
	check       func(ctx context.Context, conn *redis.Conn) error
}

func (t *target) open(how connecting) redis.UniversalClient {
	u := t.options(how)
	switch {
	case t.sentinels != nil:
		return t.openSentinel(u)
	case !how.isCluster:
		return redis.NewUniversalClient(u)
	}
	if u.TLSConfig != nil {
		u.Dialer = dialCluster(u)
	}
	cluster := redis.NewClusterClient(u.Cluster())
	followFailovers(cluster)
	return cluster
}

// options are those of the URL, with Dibs' defaults.
func (t *target) options(how connecting) *redis.UniversalOptions {
	o := t.data
	return &redis.UniversalOptions{
		Addrs: t.addrs, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
		CredentialsProvider: how.credentials, OnConnect: how.check,
		ClientName: o.ClientName, DisableIdentity: true, Protocol: 2,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout:  cmp.Or(o.DialTimeout, dialTimeout),
		ReadTimeout:  cmp.Or(o.ReadTimeout, replyTimeout),
		WriteTimeout: cmp.Or(o.WriteTimeout, replyTimeout),
		PoolSize:     cmp.Or(o.PoolSize, poolSize), PoolTimeout: o.PoolTimeout, PoolFIFO: o.PoolFIFO,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns,
		MaxActiveConns: o.MaxActiveConns, MaxConcurrentDials: o.MaxConcurrentDials,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
		ConnMaxLifetimeJitter:    o.ConnMaxLifetimeJitter,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// openSentinel makes a client that asks Sentinels for the
// primary at each new connection. When Sentinels promote another
// server, it closes all connections to the old one.
func (t *target) openSentinel(u *redis.UniversalOptions) redis.UniversalClient {
	u.MasterName = t.sentinels.master
	u.SentinelUsername = t.sentinels.user
	u.SentinelPassword = t.sentinels.password
	if u.TLSConfig != nil {
		u.TLSConfig.ServerName = "" // each server has its own
	}
	if t.sentinels.inClear {
		u.Dialer = dialSentinel(u)
		u.TLSConfig = nil
	}
	return redis.NewFailoverClient(u.Failover())
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialSentinel dials Sentinels in clear and all other servers
// over TLS. The client discovers more Sentinels. They are
// recognized by the ports of those in the URL.
func dialSentinel(u *redis.UniversalOptions) dialFunc {
	var ports []string
	for _, addr := range u.Addrs {
		_, port, _ := net.SplitHostPort(addr) // parseSentinel has validated it
		ports = append(ports, port)
	}
	dialer := &net.Dialer{Timeout: u.DialTimeout}
	encrypted := &tls.Dialer{NetDialer: dialer, Config: u.TLSConfig}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if _, port, err := net.SplitHostPort(addr); err == nil && slices.Contains(ports, port) {
			return dialer.DialContext(ctx, network, addr)
		}
		return encrypted.DialContext(ctx, network, addr)
	}
}

// dialCluster dials each cluster node over TLS under its own name. A node
// announced by IP address may instead show a certificate for the URL's host:
// some managed clusters have one certificate for all nodes.
func dialCluster(u *redis.UniversalOptions) dialFunc {
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
