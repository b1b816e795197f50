package lua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// With "appendfsync always" no reply of Redis leaves before what it wrote is on disk, so an answer of Fsync waits for nothing. Redis is
// asked for that setting at the start, for each answer of /readyz, and on each new connection: a server that was started again, or
// that a failover leads to, may have another one.

// CheckDurability returns nil if Redis, each master of a cluster, can provide Options.Durability now. A refusal wraps ErrDurability
// and names the setting that must be changed first; any other error may pass: ErrNotNow, or a Redis that does not answer. advice is for the
// log: settings that can't be checked.
func (s *Scripts) CheckDurability(ctx context.Context) (advice []string, err error) {
	if !s.opts.Durability.IsFsync() {
		return nil, nil
	}
	nodes, err := s.masters(ctx)
	if err != nil {
		return nil, err
	}
	var later error
	for _, node := range nodes {
		one, err := s.checkNode(ctx, node)
		switch {
		case errors.Is(err, ErrDurability):
			return nil, err
		case err != nil:
			later = err
		case one != "":
			advice = append(advice, one)
		}
	}
	return advice, later
}

// checkNode is CheckDurability for one server.
func (s *Scripts) checkNode(ctx context.Context, node *redis.Client) (advice string, err error) {
	advice, err = checkFsync(ctx, node, s.opts.Durability == Vouched)
	if err != nil {
		return "", fmt.Errorf("%s: %w", node.Options().Addr, err)
	}
	return advice, nil
}

func checkFsync(ctx context.Context, node *redis.Client, vouched bool) (advice string, err error) {
	info, err := Info(ctx, node, "persistence")
	if err != nil {
		return "", err
	}
	if IsLoading(info) {
		return "", fmt.Errorf("%w: it loads its data", ErrNotNow)
	}
	if info["aof_enabled"] != "1" {
		return "", fmt.Errorf(`%w: fsync needs "appendonly yes", it is off`, ErrDurability)
	}
	if lost, err := DefaultUserAdvice(ctx, node); err != nil || lost != "" && !vouched {
		return "", cmp.Or(err, fmt.Errorf("%w: fsync: %s", ErrDurability, lost))
	}
	return checkSettings(ctx, node, vouched)
}

// fsyncSettings are what the settings must be that Fsync depends on, by what else they would do.
var fsyncSettings = []struct{ name, must, why string }{
	{"appendonly", "yes", ""},
	{"appendfsync", "always", ""},
	{"no-appendfsync-on-rewrite", "no", ""},
	{"aof-load-truncated", "no", ": a crash in the middle of a write leaves half a transaction in the file, and servers that load it" +
		" nevertheless mix it up with later claims"},
}

// checkSettings reads the settings that Fsync depends on. Servers that hide them, as many managed ones do, must be vouched for.
func checkSettings(ctx context.Context, node asker, vouched bool) (advice string, err error) {
	names := []any{"config", "get"} // Redis before 7.0 takes one name only, so it can't answer
	for _, s := range fsyncSettings {
		names = append(names, s.name)
	}
	answer := redis.NewCmd(ctx, names...)
	_ = node.Process(ctx, answer) // the command holds the error, too
	list, err := answer.Slice()
	const must = "appendfsync must be always, no-appendfsync-on-rewrite no and aof-load-truncated no"
	switch {
	case isRefusal(err) && vouched:
		return must + "; that can't be checked here (" + err.Error() + ") and was vouched for", nil
	case isRefusal(err):
		return "", fmt.Errorf("%w: fsync: %s; that can't be checked here (%s): say %s if you vouch for it,"+
			" or %s, which needs no setting of Redis", ErrDurability, must, err.Error(), Vouched, MySQL)
	case err != nil:
		return "", fmt.Errorf("lua: CONFIG GET: %w", err)
	}
	is := map[any]any{}
	for i := 0; i+1 < len(list); i += 2 {
		is[list[i]] = list[i+1]
	}
	for _, s := range fsyncSettings {
		if value, _ := is[s.name].(string); value != s.must {
			return "", fmt.Errorf(`%w: fsync needs "%s %s", it is %s%s`, ErrDurability, s.name, s.must, strconv.Quote(value), s.why)
		}
	}
	return "", nil
}

// errNotSent is wrapped by errors of a connection that was not used.
var errNotSent = errors.New("not sent")

// checkConnection refuses a connection to a server that does not provide a durability; nil is nothing to check.
func checkConnection(d Durability) func(ctx context.Context, conn *redis.Conn) error {
	if !d.IsFsync() {
		return nil
	}
	return func(ctx context.Context, conn *redis.Conn) error {
		_, err := checkSettings(ctx, conn, d == Vouched)
		if errors.Is(err, ErrDurability) && isSentinel(ctx, conn) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
		return nil
	}
}

// isSentinel reports whether a connection is to a Sentinel, which has no such settings.
func isSentinel(ctx context.Context, conn asker) bool {
	info, err := Info(ctx, conn, "server")
	return err == nil && info["redis_mode"] == "sentinel"
}
