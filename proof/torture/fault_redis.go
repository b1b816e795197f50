package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

func redisFaults() []*fault {
	onlyAlone := only(Alone, "another fault kills nodes that have replicas")
	return []*fault{
		{name: "kill redis", target: onRedis, weight: 3, lasts: span(20, 1500), cannot: onlyAlone, loses: unlessFsync,
			inject: lasting(func(w *world) { w.redis[0].Kill() }, func(w *world) { w.redis[0].StartRepaired() })},
		{name: "restart redis", target: onRedis, weight: 2, lasts: span(20, 500), cannot: onlyAlone,
			inject: lasting(func(w *world) { w.redis[0].Stop() }, func(w *world) { w.redis[0].Start() })},
		{name: "pause redis", target: onRedis, weight: 2, lasts: span(100, 5000), cannot: onlyAlone,
			inject: lasting(func(w *world) { w.redis[0].Pause() }, func(w *world) { w.redis[0].Resume() })},
		{name: "flush scripts", target: onRedis, weight: 2, lasts: span(10, 600),
			inject: again(func(ctx context.Context, rdb *redis.Client) error { return rdb.ScriptFlush(ctx).Err() })},
		{name: "redis is slow", target: onRedis, weight: 2, lasts: span(500, 4000), inject: again(holdUp)},
		{name: "cut clients of redis", target: onRedis, weight: 3, lasts: span(1, 600),
			inject: again(func(ctx context.Context, rdb *redis.Client) error {
				return rdb.ClientKillByFilter(ctx, "TYPE", "normal").Err()
			})},
		{name: "redis is full", target: onRedis, weight: 3, lasts: span(50, 2000), inject: func(w *world, s *injection) error {
			err := w.eachPrimary(func(ctx context.Context, rdb *redis.Client) error { return rdb.ConfigSet(ctx, "maxmemory", "1").Err() })
			wait(w.ctx, s.lasts)
			if err != nil {
				return err
			}
			return w.eachPrimary(func(ctx context.Context, rdb *redis.Client) error { return rdb.ConfigSet(ctx, "maxmemory", "0").Err() })
		}},
		{name: "delete a key", target: onRedis, weight: 4, lasts: span(1, 100), inject: func(w *world, s *injection) error {
			l := pick(w.inForce, s.who)
			k := lua.KeysOf(l.id, l.partition)
			key := pick([]string{k.State, k.State, k.Users, k.Keys}, int(s.n))
			s.what = key
			wait(w.ctx, s.lasts)
			return w.unlink(key)
		}},
		{name: "depose the leader", target: onRedis, weight: 2, lasts: span(1, 100), inject: func(w *world, _ *injection) error {
			return w.unlink(lua.LeaderKey)
		}},
		{name: "flush redis", target: onRedis, weight: 3, lasts: span(1, 300), loses: always, inject: func(w *world, s *injection) error {
			w.without(s, "consumer")
			return w.eachPrimary(func(ctx context.Context, rdb *redis.Client) error { return rdb.FlushAll(ctx).Err() })
		}},
	}
}

// holdUp delays each call by up to 30 ms.
func holdUp(ctx context.Context, rdb *redis.Client) error {
	return rdb.ClientPause(ctx, 30*time.Millisecond).Err()
}

func (w *world) unlink(key string) error {
	return w.eachPrimary(func(ctx context.Context, rdb *redis.Client) error {
		if err := rdb.Unlink(ctx, key).Err(); err != nil && !redis.HasErrorPrefix(err, "MOVED") {
			return err //nolint:wrapcheck // eachPrimary does
		}
		return nil
	})
}

// unlessFsync: a crash of Redis may lose what is neither on its
// disk nor in MySQL.
func unlessFsync(o *Options) bool { return !o.Durability.IsFsync() && unlessMySQL(o) }

// again acts on every primary, every 20 ms for as long as the fault lasts.
func again(do func(ctx context.Context, rdb *redis.Client) error) func(w *world, s *injection) error {
	return func(w *world, s *injection) error {
		for till := time.Now().Add(s.lasts); ; wait(w.ctx, 20*time.Millisecond) {
			if err := w.eachPrimary(do); err != nil || time.Now().After(till) || w.ctx.Err() != nil {
				return err
			}
		}
	}
}

// eachPrimary acts on every node that takes writes.
func (w *world) eachPrimary(do func(ctx context.Context, rdb *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(w.ctx, healWithin)
	defer cancel()
	for _, node := range w.redis {
		if err := w.onPrimary(ctx, node, do); err != nil {
			return wrap(err)
		}
	}
	return nil
}

// onPrimary acts on the node if it is a primary, over its own
// connection: others may have been cut.
func (w *world) onPrimary(ctx context.Context, node *testenv.RedisServer, do func(ctx context.Context, rdb *redis.Client) error) error {
	rdb := redis.NewClient(&redis.Options{Addr: node.Addr()})
	defer func() { _ = rdb.Close() }()
	info, err := rdb.Info(ctx, "replication").Result()
	if err != nil || !strings.Contains(info, "role:master") {
		return err //nolint:wrapcheck // eachPrimary does
	}
	return do(ctx, rdb)
}

// without kills all processes of a kind, every second time, so
// that none saves what is about to be lost.
func (w *world) without(s *injection, kind string) {
	if s.n%2 == 0 {
		for _, p := range w.of(kind) {
			p.kill(s.lasts + 500*time.Millisecond)
		}
		s.what = "while no " + kind + " works"
	}
	wait(w.ctx, s.lasts)
}

// snapshotFaults restore an earlier state of Redis.
func snapshotFaults() []*fault {
	cannot := only(Alone, "the nodes have no common moment to go back to")
	return []*fault{{
		name: "roll back redis", target: onRedis, weight: 9, lasts: nearRollback, loses: always, cannot: cannot, inject: rollBackRedis,
	}, {
		name: "roll back redis far", target: onRedis, weight: 1, lasts: farRollback, loses: always, cannot: cannot, inject: rollBackRedis,
	}}
}

func rollBackRedis(w *world, s *injection) error {
	then, err := w.copyAOF()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(then) }()
	w.without(s, "consumer")
	s.what += fmt.Sprintf(" by %s", s.lasts.Round(time.Millisecond))
	return w.restoreCopy(then)
}

// aofFolder is the folder of Redis' append-only file.
func (w *world) aofFolder() (string, error) {
	rdb := redis.NewClient(&redis.Options{Addr: w.redis[0].Addr()})
	defer func() { _ = rdb.Close() }()
	dir, err := rdb.ConfigGet(w.ctx, "dir").Result()
	return filepath.Join(dir["dir"], "appendonlydir"), wrap(err)
}

// copyAOF copies the append-only file. It only grows, so the
// copy is its start.
func (w *world) copyAOF() (string, error) {
	from, err := w.aofFolder()
	if err != nil {
		return "", err
	}
	to, err := os.MkdirTemp("", "dibs-torture-aof-")
	if err != nil {
		return "", wrap(err)
	}
	return to, wrap(os.CopyFS(to, os.DirFS(from)))
}

// restoreCopy kills Redis and restarts it with the copy.
func (w *world) restoreCopy(copied string) error {
	folder, err := w.aofFolder()
	if err != nil {
		return err
	}
	if err := w.Try(w.redis[0].Kill); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return wrap(err)
	}
	if err := os.CopyFS(folder, os.DirFS(copied)); err != nil {
		return wrap(err)
	}
	return w.Try(func() { w.redis[0].StartRepaired() })
}
