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
	// poolSize is the most connections. Each stream that is read needs one, and
	// there may be 256. Claims share calls and need few.
	poolSize = 64 + 256
)

// Connect makes a client for a redis:// or rediss:// URL, or for a
// redis+sentinel:// URL, see parseSentinel. Several hosts, separated by commas,
// are a cluster, and so is one with the option cluster=true. The query may hold
// usedOptions; any other option is refused.
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

// Detect is Connect, but where the one server of a URL is a node of a cluster,
// it connects to the cluster. A server that does not answer is taken for what
// the URL says: call CheckTopology once it is there.
//
// now returns the URL with the password of the moment, with which each new
// connection signs in.
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

// CheckTopology refuses a client of one server where that is a node of a
// cluster: it would answer for a part of the keys. The option cluster=false is
// for a cluster of one node that is not reached by the address that it tells.
// Errors: that refusal, ErrURL, or those of Redis.
func CheckTopology(ctx context.Context, rdb redis.UniversalClient, url string) error {
	one, isOne := rdb.(*redis.Client)
	t, err := parse(url)
	if err != nil || !isOne || t.own.cluster != "" {
		return err
	}
	info, err := Info(ctx, one, "cluster")
	if err == nil && info["cluster_enabled"] == "" { // a managed server that does not say
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
	case err != nil && !errors.As(err, &refused): // a server alone may refuse, a node never does
		return fmt.Errorf("redisconn: topology: %w", err)
	}
	return nil
}

// connecting is how connections are made.
type connecting struct {
	isCluster   bool
	credentials func() (user, password string) // nil: those of the URL
	check       func(ctx context.Context, conn *redis.Conn) error
}

// open makes the client.
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

// options are those of the URL, and Dibs' defaults for the others.
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

// openSentinel makes a client that asks Sentinels for the primary at each new
// connection. When Sentinels promote another server, it closes all connections
// to the old one.
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

// dialSentinel dials Sentinels in clear and all other servers by TLS. The
// client finds further Sentinels by itself. They are known by the ports of
// those in the URL.
func dialSentinel(u *redis.UniversalOptions) dialFunc {
	var ports []string
	for _, addr := range u.Addrs {
		_, port, _ := net.SplitHostPort(addr) // parseSentinel has read it
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

// dialCluster dials each node of a cluster by TLS in its own name. A node that
// the cluster tells by its IP address may show a certificate for the host of
// the URL instead: some managed clusters have one certificate for all nodes.
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
