package torture

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/testenv"
	"dibs/lua"
)

// redisFaults befall a Redis that keeps its data.
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

// holdUp has each call wait for up to 30 ms.
func holdUp(ctx context.Context, rdb *redis.Client) error {
	return rdb.ClientPause(ctx, 30*time.Millisecond).Err()
}

// unlink deletes a key wherever it is.
func (w *world) unlink(key string) error {
	return w.eachPrimary(func(ctx context.Context, rdb *redis.Client) error {
		if err := rdb.Unlink(ctx, key).Err(); err != nil && !redis.HasErrorPrefix(err, "MOVED") {
			return err //nolint:wrapcheck // eachPrimary does
		}
		return nil
	})
}

// unlessFsync: a crash of Redis may lose what is neither on its disk nor in MySQL.
func unlessFsync(o *Options) bool { return !o.Durability.IsFsync() && unlessMySQL(o) }

// again does something to every primary, every 20 ms for as long as the fault lasts.
func again(do func(ctx context.Context, rdb *redis.Client) error) func(w *world, s *injection) error {
	return func(w *world, s *injection) error {
		for till := time.Now().Add(s.lasts); ; wait(w.ctx, 20*time.Millisecond) {
			if err := w.eachPrimary(do); err != nil || time.Now().After(till) || w.ctx.Err() != nil {
				return err
			}
		}
	}
}

// eachPrimary does something on every node that takes writes.
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

// onPrimary does something if the node is a primary, over a connection of its own: those of others may have been cut.
func (w *world) onPrimary(ctx context.Context, node *testenv.RedisServer, do func(ctx context.Context, rdb *redis.Client) error) error {
	rdb := redis.NewClient(&redis.Options{Addr: node.Addr()})
	defer func() { _ = rdb.Close() }()
	info, err := rdb.Info(ctx, "replication").Result()
	if err != nil || !strings.Contains(info, "role:master") {
		return err //nolint:wrapcheck // eachPrimary does
	}
	return do(ctx, rdb)
}

// without kills all processes of a kind, every second time, so that no one saves what is about to be lost.
func (w *world) without(s *injection, kind string) {
	if s.n%2 == 0 {
		for _, p := range w.of(kind) {
			p.kill(s.lasts + 500*time.Millisecond)
		}
		s.what = "while no " + kind + " works"
	}
	wait(w.ctx, s.lasts)
}

// snapshotFaults put Redis back to what it was before.
func snapshotFaults() []*fault {
	cannot := only(Alone, "the nodes have no common moment to go back to")
	return []*fault{{
		name: "disk of redis lied", target: onRedis, weight: 4, lasts: span(50, 500), loses: always, cannot: cannot, inject: powerCut,
	}, {
		name: "roll back redis", target: onRedis, weight: 5, lasts: nearRollback, loses: always, cannot: cannot, inject: rollBackRedis,
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

// aofFolder is where Redis keeps its append-only file.
func (w *world) aofFolder() (string, error) {
	rdb := redis.NewClient(&redis.Options{Addr: w.redis[0].Addr()})
	defer func() { _ = rdb.Close() }()
	dir, err := rdb.ConfigGet(w.ctx, "dir").Result()
	return filepath.Join(dir["dir"], "appendonlydir"), wrap(err)
}

// powerCut does what a power cut does to a disk that had said of writes that they were on it: Redis dies, and the end of its file is gone.
func powerCut(w *world, s *injection) error {
	folder, err := w.aofFolder()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.incr.aof"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%w: %v are the parts of the append-only file that grow, not one", testenv.ErrServer, files)
	}
	before, err := os.Stat(files[0])
	if err != nil {
		return wrap(err)
	}
	wait(w.ctx, s.lasts)
	if err := w.Try(w.redis[0].Kill); err != nil {
		return err
	}
	after, err := os.Stat(files[0])
	if err != nil {
		return wrap(err)
	}
	kept, err := wholeCommands(files[0], before.Size())
	if err != nil {
		return err
	}
	s.what = fmt.Sprintf("the last %d bytes are gone", after.Size()-kept)
	if err := os.Truncate(files[0], kept); err != nil {
		return wrap(err)
	}
	return w.Try(func() { w.redis[0].StartRepaired() })
}

// wholeCommands is the length of the transactions that end within the first most bytes of an append-only file: Dibs demands of a Redis in
// mode fsync that it does not load half a one.
func wholeCommands(path string, most int64) (whole int64, err error) {
	file, err := os.Open(path) //nolint:gosec // Redis' own
	if err != nil {
		return 0, wrap(err)
	}
	defer func() { _ = file.Close() }()
	from := bufio.NewReader(io.LimitReader(file, most))
	read := int64(0)
	multi := false
	number := func(mark byte) (n int, ok bool) {
		line, err := from.ReadString('\n')
		read += int64(len(line))
		if err != nil || line[0] != mark {
			return 0, false
		}
		n, err = strconv.Atoi(strings.TrimSpace(line[1:]))
		return n, err == nil
	}
	for {
		words, ok := number('*')
		if !ok {
			return whole, nil
		}
		var word []byte
		for i := range words {
			n, ok := number('$')
			text := make([]byte, n+2)
			got, err := io.ReadFull(from, text)
			read += int64(got)
			if !ok || err != nil {
				return whole, nil // the end
			}
			if i == 0 {
				word = bytes.ToLower(text[:n])
			}
		}
		multi = string(word) == "multi" || multi && string(word) != "exec"
		if !multi {
			whole = read
		}
	}
}

// copyAOF copies the append-only file as it is now. It only grows, so the copy is its beginning.
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

// restoreCopy kills Redis and starts it with the copy.
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
