package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Fsync says whether a server must have each write on disk before it replies.
// "appendfsync always" guarantees that, so no call has to wait for it.
//
// The setting is checked at start, for each /readyz reply, and
// on each new connection: a restarted server, or one promoted by
// a failover, may have another.
type Fsync int

// The choices.
const (
	NoFsync      Fsync = iota // not required
	MustFsync                 // required, checked by its settings
	VouchedFsync              // required; hidden settings are trusted
)

// ErrFsync is wrapped by every refusal of a server's
// persistence. The error names the setting to change.
var ErrFsync = errors.New("redisconn: fsync")

var fsyncSettings = []struct{ name, must, why string }{
	{"appendonly", "yes", ""},
	{"appendfsync", "always", ""},
	{"no-appendfsync-on-rewrite", "no", ""},
	{"aof-load-truncated", "no", ": a crash in the middle of a write leaves half a transaction in the file," +
		" and servers that load it nevertheless mix it up with later claims"},
}

// CheckFsync checks a server's settings against fsync. Any error
// but ErrFsync may be temporary.
func CheckFsync(ctx context.Context, node *redis.Client, fsync Fsync) error {
	if fsync == NoFsync {
		return nil
	}
	info, err := Info(ctx, node, "persistence")
	if err != nil {
		return err
	}
	advice, err := DefaultUserAdvice(ctx, node, info)
	switch {
	case err != nil:
	case info["aof_enabled"] != "1":
		err = fmt.Errorf(`%w: needs "appendonly yes", it is off`, ErrFsync)
	case advice != "" && fsync != VouchedFsync:
		err = fmt.Errorf("%w: %s", ErrFsync, advice)
	default:
		err = checkSettings(ctx, node, fsync)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", node.Options().Addr, err)
	}
	return nil
}

// checkSettings reads the settings. Servers that hide them, as
// many managed ones do, must be vouched for.
func checkSettings(ctx context.Context, node asker, fsync Fsync) error {
	names := []any{"config", "get"} // Redis before 7.0 takes one name only, so the check fails
	for _, s := range fsyncSettings {
		names = append(names, s.name)
	}
	answer := redis.NewMapStringStringCmd(ctx, names...)
	_ = node.Process(ctx, answer) // the command also holds the error
	settings, err := answer.Result()
	switch {
	case isRefusal(err) && fsync == VouchedFsync:
		return nil
	case isRefusal(err):
		return fmt.Errorf("%w: appendfsync must be always, no-appendfsync-on-rewrite no and aof-load-truncated no;"+
			" that can't be checked here (%s): say fsync:vouched if you vouch for it,"+
			" or mysql, which needs no setting of Redis", ErrFsync, err.Error())
	case err != nil:
		return fmt.Errorf("redisconn: CONFIG GET: %w", err)
	}
	for _, s := range fsyncSettings {
		if value := settings[s.name]; value != s.must {
			return fmt.Errorf(`%w: needs "%s %s", it is %s%s`, ErrFsync, s.name, s.must, strconv.Quote(value), s.why)
		}
	}
	return nil
}

// notSentError marks the error of a connection refused before any
// command was sent.
type notSentError struct{}

func (notSentError) Error() string { return "not sent" }

// NotSent lets package lua separate such an error from one after
// which a claim may have been made.
func (notSentError) NotSent() bool { return true }

// checkConnection refuses new connections to servers that
// violate fsync. It is nil for NoFsync.
func checkConnection(fsync Fsync) func(ctx context.Context, conn *redis.Conn) error {
	if fsync == NoFsync {
		return nil
	}
	return func(ctx context.Context, conn *redis.Conn) error {
		err := checkSettings(ctx, conn, fsync)
		if errors.Is(err, ErrFsync) && isSentinel(ctx, conn) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", notSentError{}, err)
		}
		return nil
	}
}

// isSentinel reports whether a connection is to a Sentinel,
// which has no such settings.
func isSentinel(ctx context.Context, conn asker) bool {
	info, err := Info(ctx, conn, "server")
	return err == nil && info["redis_mode"] == "sentinel"
}

const defaultUserAdvice = "Redis has an append-only file, and the default user of its ACL is off or may not do " +
	"everything: when it starts again, Redis 7.0 and Valkey 8.0.1 leave out what every script wrote, " +
	"and so every claim. Give that user a long password instead: " +
	"user default on >PASSWORD ~* &* +@all"

// DefaultUserAdvice returns advice if a server would lose its
// claims at its next start despite its append-only file, or "".
// Such servers load the file as the default user, and a script's
// writes are stored as a transaction (valkey-io/valkey#3983,
// redis/redis#14541). info is the section persistence.
func DefaultUserAdvice(ctx context.Context, node *redis.Client, info map[string]string) (string, error) {
	if isLoading(info) {
		return "", errLoading
	}
	if info["aof_enabled"] != "1" {
		return "", nil
	}
	reply, err := node.Do(ctx, "acl", "getuser", "default").Slice()
	switch {
	case isRefusal(err): // a managed server: it can't be checked
		return "", nil
	case err != nil:
		return "", fmt.Errorf("redisconn: ACL GETUSER: %w", err)
	}
	user := map[any]any{}
	for i := 0; i+1 < len(reply); i += 2 {
		user[reply[i]] = reply[i+1]
	}
	flags, _ := user["flags"].([]any)
	commands, _ := user["commands"].(string)
	if slices.Contains(flags, any("off")) || strings.HasPrefix(commands, "-@all") || user["keys"] == "" {
		return defaultUserAdvice, nil
	}
	return "", nil
}
