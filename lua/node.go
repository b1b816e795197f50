package lua

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrNotNow says that Redis cannot do something at this moment that it may do later.
var ErrNotNow = errors.New("lua: redis cannot do this now")

var errClient = errors.New("lua: this kind of client is not known")

// nodeOf is the client of the one server that holds key.
func (s *Scripts) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.rdb.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	default:
		return nil, fmt.Errorf("%w: %T", errClient, c)
	}
}

// clusterMastersMax is as many as Redis Cluster is made for.
const clusterMastersMax = 1000

// masters are the servers that claims may be made on.
func (s *Scripts) masters(ctx context.Context) ([]*redis.Client, error) {
	cluster, isCluster := s.rdb.(*redis.ClusterClient)
	if !isCluster {
		one, err := s.nodeOf(ctx, "")
		return []*redis.Client{one}, err
	}
	found := make(chan *redis.Client, clusterMastersMax)
	err := cluster.ForEachMaster(ctx, func(_ context.Context, one *redis.Client) error {
		select {
		case found <- one:
			return nil
		default:
			return fmt.Errorf("%w: a cluster of more than %d masters", errClient, clusterMastersMax)
		}
	})
	close(found)
	var nodes []*redis.Client
	for one := range found {
		nodes = append(nodes, one)
	}
	if err != nil {
		return nil, fmt.Errorf("lua: masters of the cluster: %w", err)
	}
	return nodes, nil
}

// asker is a client, or one connection of it.
type asker interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Info(ctx context.Context, sections ...string) *redis.StringCmd
}

// Info reads sections of INFO; none is all that there are by default.
func Info(ctx context.Context, node asker, section ...string) (map[string]string, error) {
	text, err := node.Info(ctx, section...).Result()
	if err != nil {
		return nil, fmt.Errorf("lua: INFO: %w", err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[name] = value
		}
	}
	return info, nil
}

// IsLoading reports whether a server still loads its data, by its INFO. Until then it says that it has no append-only file, whatever its
// setting.
func IsLoading(info map[string]string) bool {
	return info["loading"] == "1" || info["async_loading"] == "1"
}

// isRefusal reports whether the server refuses the command for good; other errors may pass.
func isRefusal(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "Unknown") ||
		strings.Contains(strings.ToLower(err.Error()), "unknown command"))
}

// MayPass reports whether a server that refused, or did not answer, may answer later without a change of its settings or of this process'.
func MayPass(err error) bool {
	var answered redis.Error
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "remote error": // an alert of TLS, such as that a certificate is required
		return false
	case err == nil, errors.Is(err, ErrDurability), errors.As(err, &certificate), errors.As(err, &record):
		return false
	case errors.As(err, &answered):
		text := answered.Error()
		return !slices.ContainsFunc([]string{"NOAUTH", "WRONGPASS", "NOPERM", "ERR"}, func(code string) bool {
			return strings.HasPrefix(text, code+" ")
		}) || slices.ContainsFunc([]string{"max number of clients", "upstream", "timed out"}, func(words string) bool {
			return strings.Contains(text, words) // the last two of proxies
		})
	}
	return true
}
