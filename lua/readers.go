package lua

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

const (
	// readerLease is how long the partitions of a dead process have no
	// reader.
	readerLease = 3 * time.Second
	readerRenew = readerLease / 3
	// readerAsk bounds a call. A stalled call
	// then leaves time to renew a lease.
	readerAsk = readerRenew / 2
	noLease   = -2 // PTTL's answer
)

// Readers shares the partitions among the processes that read in group
// syncer. Each takes leases of partitions divided by processes, rounded up.
// The leases only save duplicate work: MySQL's offset guards correctness.
type Readers struct {
	scripts *Scripts
	log     *slog.Logger
	token   string

	renewing sync.WaitGroup

	mu      sync.Mutex
	leases  map[int]*readerLock
	changed chan struct{} // closed when leases change
}

type readerLock struct {
	lock *Lock
	term context.Context //nolint:containedctx // lasts as long as the lease
	end  context.CancelFunc
}

// NewReaders returns the share of this process; Run fills it.
func NewReaders(scripts *Scripts, log *slog.Logger) *Readers {
	return &Readers{
		scripts: scripts, log: log, token: rand.Text(), leases: make(map[int]*readerLock), changed: make(chan struct{}),
	}
}

// Await waits for the lease of a partition. The returned context ends
// with the lease or ctx. The error is the cause of ctx.
func (r *Readers) Await(ctx context.Context, partition int) (context.Context, error) {
	for {
		r.mu.Lock()
		lease := r.leases[partition]
		changed := r.changed
		r.mu.Unlock()
		if lease != nil && lease.term.Err() == nil {
			held, end := context.WithCancel(ctx)
			context.AfterFunc(lease.term, end)
			return held, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Run takes leases until ctx ends, and then releases them.
func (r *Readers) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r.share(ctx)
		_ = sleep.For(ctx, readerRenew) // the loop checks ctx
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readerLease)
	defer cancel()
	for partition := range r.held() {
		r.release(ctx, partition)
	}
	r.renewing.Wait()
	_ = r.scripts.rdb.ZRem(ctx, readersKey, r.token).Err() // it expires anyway
}

// share releases leases beyond this process's
// share, and takes free ones up to it.
func (r *Readers) share(ctx context.Context) {
	most := r.scripts.Partitions()
	if processes, err := r.join(ctx); err == nil {
		most = (most + processes - 1) / processes
	}
	held := r.held()
	missing := most - len(held)
	for partition := range held {
		if missing < 0 {
			r.release(ctx, partition)
			missing++
		}
	}
	if missing <= 0 {
		return
	}
	free := r.free(ctx)
	var asked sync.WaitGroup
	for _, partition := range free[:min(missing, len(free))] {
		asked.Go(func() { r.take(ctx, partition) })
	}
	asked.Wait()
}

func (r *Readers) free(ctx context.Context) (free []int) {
	ctx, cancel := context.WithTimeout(ctx, readerAsk)
	defer cancel()
	leases := make([]*redis.DurationCmd, r.scripts.Partitions())
	// each command has its own error
	_, _ = r.scripts.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for partition := range leases {
			leases[partition] = p.PTTL(ctx, readerKey(partition))
		}
		return nil
	})
	for partition, lease := range leases {
		switch left := lease.Val(); {
		case lease.Err() != nil:
		case left == noLease:
			free = append(free, partition)
		case left < 0 || left > readerLease:
			// the next round tries again
			_ = r.scripts.shorten(ctx, readerKey(partition), readerLease)
		}
	}
	return free
}

func (r *Readers) join(ctx context.Context) (processes int, err error) {
	ctx, cancel := context.WithTimeout(ctx, readerAsk)
	defer cancel()
	now, err := r.scripts.Now(ctx)
	if err != nil {
		return 0, err
	}
	var count *redis.IntCmd
	_, err = r.scripts.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, readersKey, redis.Z{Score: float64(now.Add(readerLease).UnixMilli()), Member: r.token})
		p.ZRemRangeByScore(ctx, readersKey, "-inf", strconv.FormatInt(now.UnixMilli(), 10))
		// A score far ahead was written while Redis' clock was.
		p.ZRemRangeByScore(ctx, readersKey, strconv.FormatInt(now.Add(2*readerLease).UnixMilli(), 10), "+inf")
		count = p.ZCard(ctx, readersKey)
		return nil
	})
	if err != nil {
		return 0, classifyError("readers", err)
	}
	return int(min(max(count.Val(), 1), math.MaxInt32)), nil
}

func (r *Readers) held() map[int]*readerLock {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.leases)
}

func (r *Readers) take(ctx context.Context, partition int) {
	asking, cancel := context.WithTimeout(ctx, readerAsk)
	defer cancel()
	lock, err := r.scripts.lockReader(asking, partition, r.token)
	if err != nil {
		if !errors.Is(err, ErrLocked) && ctx.Err() == nil {
			r.log.LogAttrs(ctx, slog.LevelDebug, "could not ask for the lease of a partition",
				slog.Int("partition", partition), slog.Any("error", err))
		}
		return
	}
	term, end := context.WithCancel(context.WithoutCancel(ctx))
	lease := &readerLock{lock: lock, term: term, end: end}
	r.set(partition, lease)
	r.renewing.Go(func() {
		if lock.RenewUntil(term) != nil && r.held()[partition] == lease {
			r.set(partition, nil)
		}
	})
}

func (r *Readers) release(ctx context.Context, partition int) {
	if lease := r.held()[partition]; lease != nil { // else it was lost
		r.set(partition, nil)
		_ = lease.lock.Release(ctx) // it expires by itself
	}
}

// set replaces or removes the lease of a partition, and wakes Await.
func (r *Readers) set(partition int, lease *readerLock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.leases[partition]; old != nil {
		old.end()
	}
	delete(r.leases, partition)
	if lease != nil {
		r.leases[partition] = lease
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// lockReader takes the lease of a partition. The same token may take it
// again. Errors as LockLeader.
func (s *Scripts) lockReader(ctx context.Context, partition int, token string) (*Lock, error) {
	return s.obtain(ctx, readerKey(partition), readerLease, &redislock.Options{Token: token})
}
