package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrEviction means that a server may evict keys, which would
	// lose claims.
	ErrEviction = errors.New("redisconn: redis evicts keys")

	errClient  = errors.New("redisconn: this kind of client is not known")
	errLoading = errors.New("redisconn: redis loads its data")
)

// EachMaster runs a check of all masters concurrently. A refusal
// takes precedence over a temporary error.
func EachMaster(
	ctx context.Context, rdb redis.UniversalClient, check func(ctx context.Context, master *redis.Client) error,
) error {
	var mu sync.Mutex
	var refused, passing error
	switch c := rdb.(type) {
	case *redis.Client:
		return check(ctx, c)
	case *redis.ClusterClient:
		err := c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			err := check(ctx, master)
			mu.Lock()
			defer mu.Unlock()
			if MayPass(err) {
				passing = err
			} else if err != nil {
				refused = err
			}
			return nil
		})
		return cmp.Or(refused, passing, err)
	}
	return fmt.Errorf("%w: %T", errClient, rdb)
}

// asker is a client, or one connection of it.
type asker interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Info(ctx context.Context, sections ...string) *redis.StringCmd
}

// Info reads sections of INFO; with none given, the default ones.
func Info(ctx context.Context, node asker, section ...string) (map[string]string, error) {
	text, err := node.Info(ctx, section...).Result()
	if err != nil {
		return nil, fmt.Errorf("redisconn: INFO: %w", err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[name] = value
		}
	}
	return info, nil
}

// isLoading reports whether a server still loads its data. Until it is done,
// its INFO denies an append-only file, whatever its setting.
func isLoading(info map[string]string) bool {
	return info["loading"] == "1" || info["async_loading"] == "1"
}

// CheckPolicy refuses a server that evicts keys, by its INFO or
// settings. If it hides both, the URL must vouch for it. Errors:
// ErrEviction, ErrURL, or those of Redis.
func CheckPolicy(ctx context.Context, node *redis.Client, info map[string]string, url string) error {
	policy := info["maxmemory_policy"]
	if policy == "" {
		settings, err := node.ConfigGet(ctx, "maxmemory-policy").Result()
		if err != nil && !isRefusal(err) {
			return fmt.Errorf("redisconn: CONFIG GET: %w", err)
		}
		policy = settings["maxmemory-policy"]
	}
	if policy == "" {
		t, err := parse(url)
		if err != nil {
			return err
		}
		policy = t.own.policy
	}
	switch policy {
	case noeviction:
		return nil
	case "":
		return fmt.Errorf("%w: names a server that says its maxmemory-policy neither by INFO nor by CONFIG GET:"+
			" it must be noeviction; add the option maxmemory_policy=noeviction if it is", ErrURL)
	}
	return fmt.Errorf("%w: its maxmemory-policy is %q; set it to noeviction", ErrEviction, policy)
}

// isRefusal reports whether the server refuses the command permanently.
func isRefusal(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "Unknown") ||
		strings.Contains(strings.ToLower(err.Error()), "unknown command"))
}

// MayPass reports whether an error may end without a change of
// settings, here or at the server.
func MayPass(err error) bool {
	var answered redis.Error
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var network *net.OpError
	switch {
	case err == nil, errors.Is(err, ErrFsync), errors.Is(err, ErrEviction), errors.Is(err, ErrURL):
		return false
	case errors.As(err, &certificate), errors.As(err, &record):
		return false
	case errors.As(err, &network) && network.Op == "remote error": // a TLS alert, such as a missing certificate
		return false
	case errors.As(err, &answered):
		return !refusesForGood(answered.Error())
	}
	return true
}

// refusesForGood classifies a reply of Redis, or of a proxy,
// which may send errors of its own as ERR.
func refusesForGood(text string) bool {
	code, _, isCode := strings.Cut(text, " ")
	if !isCode || !slices.Contains([]string{"NOAUTH", "WRONGPASS", "NOPERM", "ERR"}, code) {
		return false
	}
	return !slices.ContainsFunc([]string{"max number of clients", "upstream", "timed out"},
		func(words string) bool { return strings.Contains(text, words) })
}

// Health is the memory use of a Redis.
type Health struct {
	UsedBytes  int64 // memory in use; 0: not reported
	LimitBytes int64 // maxmemory; 0: no limit, or not reported
}

// HealthOf reads the memory use of Redis; in a cluster, of one server.
func HealthOf(ctx context.Context, rdb redis.UniversalClient) (Health, error) {
	var h Health
	info, err := Info(ctx, rdb, "memory")
	var refused redis.Error
	if err != nil && !errors.As(err, &refused) { // the embedded Redis and some services do not report it
		return h, err
	}
	h.UsedBytes, _ = strconv.ParseInt(info["used_memory"], 10, 64) // 0 if missing
	h.LimitBytes, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
	return h, nil
}
