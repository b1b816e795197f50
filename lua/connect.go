package lua

import (
	"errors"
	"fmt"
	neturl "net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrURL is wrapped by every refusal of a Redis URL.
var ErrURL = errors.New("lua: bad redis url")

const (
	dialTimeout  = 2 * time.Second
	replyTimeout = 3 * time.Second
	// poolSize is the most connections. Claims share calls, so few are needed; each stream that is read keeps one to itself.
	poolSize = 64 + PartitionsMax
)

// Connect makes a client for a redis:// or rediss:// URL; several hosts, comma-separated, are a cluster. It never sends a
// command twice by itself: go-redis would by default, and a claim that is sent twice must be told from two claims.
// It does not connect yet.
func Connect(url string) (redis.UniversalClient, error) {
	first, more, isCluster := strings.Cut(url, ",")
	opts, err := redis.ParseURL(first)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, hidePassword(err))
	}
	u := &redis.UniversalOptions{
		Addrs: []string{opts.Addr}, Username: opts.Username, Password: opts.Password, DB: opts.DB, TLSConfig: opts.TLSConfig,
		Protocol: 2, MaxRetries: -1, DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: replyTimeout, WriteTimeout: replyTimeout,
		ContextTimeoutEnabled: true, PoolSize: poolSize, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if !isCluster {
		return redis.NewUniversalClient(u), nil
	}
	if opts.DB != 0 {
		return nil, fmt.Errorf("%w: a cluster has only database 0", ErrURL)
	}
	for host := range strings.SplitSeq(more, ",") {
		addr, err := clusterAddr(host)
		if err != nil {
			return nil, err
		}
		u.Addrs = append(u.Addrs, addr)
	}
	cluster := redis.NewClusterClient(u.Cluster())
	followFailovers(cluster)
	return cluster, nil
}

// clusterAddr reads a further host of a cluster: host:port, or a whole URL.
func clusterAddr(host string) (string, error) {
	host = strings.TrimSpace(host)
	if !strings.Contains(host, "://") {
		host = "redis://" + host
	}
	opts, err := redis.ParseURL(host)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrURL, hidePassword(err))
	}
	return opts.Addr, nil
}

// hidePassword keeps a URL, which may hold a password, out of an error's text.
func hidePassword(err error) error {
	if parse, ok := errors.AsType[*neturl.Error](err); ok {
		return parse.Err
	}
	return err
}
