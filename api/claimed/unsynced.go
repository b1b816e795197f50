package claimed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"dibs/models"
)

const (
	// unsyncedMax bounds the claims in memory: about 100 MB.
	unsyncedMax = 200_000
	// unsyncedIdle is how long they stay in memory after the last look-up.
	unsyncedIdle = 10 * time.Second
	// pageSize is entries read at a time: a third of a megabyte, and Redis is held for about a millisecond.
	pageSize = 1000
	// readersMax bounds the partitions that are read at once.
	readersMax = 16
	// refreshTries is how often a refresh begins when what was known of a stream turns out to be gone.
	refreshTries = 2
)

// unsynced finds claims that MySQL may not have yet: those whose events group syncer has not acknowledged. What is acknowledged is
// committed, so a claim is in MySQL, or here, or it does not exist. The index is filled by look-ups, not by claims, and dropped
// when no look-up came for a while.
type unsynced struct {
	streams   Streams
	timeout   time.Duration // of one refresh
	most      int           // claims in memory
	idle      time.Duration
	refresher refresher[*index]
	held      prometheus.Gauge

	mu     sync.Mutex
	index  *index // nil: nothing is known
	expiry *time.Timer
}

func newUnsynced(cfg *Config, held prometheus.Gauge) *unsynced {
	u := &unsynced{streams: cfg.Streams, timeout: cfg.CallTimeout, most: unsyncedMax, idle: unsyncedIdle, held: held}
	u.refresher = refresher[*index]{refresh: u.refresh, group: cfg.Workers}
	return u
}

// find finds a claim that MySQL may not have yet. Nil without an error says: a claim of this id that was answered before the
// call is in MySQL by now. Errors: errFull, and those of Streams.
func (u *unsynced) find(ctx context.Context, id string) (*models.Event, error) {
	x, err := u.refresher.get(ctx)
	if err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	if e := x.claim(id); e != nil {
		return e, nil
	}
	return nil, err
}

// ofUser gives all claims of a user that MySQL may not have yet and that were answered before the call, in no order. Errors as
// find.
func (u *unsynced) ofUser(ctx context.Context, userID string) ([]*models.Event, error) {
	x, err := u.refresher.get(ctx)
	if err != nil {
		return nil, err
	}
	return x.ofUser(userID), nil
}

// refresh brings the index up to date.
func (u *unsynced) refresh() (*index, error) {
	ctx, cancel := context.WithTimeout(context.Background(), u.timeout)
	defer cancel()
	var x *index
	var err error
	for range refreshTries {
		x = u.current()
		err = u.catchUp(ctx, x)
		if !errors.Is(err, errGone) {
			break
		}
		u.drop(x)
	}
	u.keep(x)
	return x, err
}

// current is the index to bring up to date.
func (u *unsynced) current() *index {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.index == nil {
		u.index = newIndex(u.streams.Partitions(), u.most)
	}
	if u.expiry != nil {
		u.expiry.Stop()
	}
	return u.index
}

// keep keeps an index until it expires.
func (u *unsynced) keep(x *index) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.index == x {
		u.held.Set(float64(x.size()))
		u.expiry = time.AfterFunc(u.idle, func() { u.drop(x) })
	}
}

// drop forgets an index. A reader that has it goes on with what it held.
func (u *unsynced) drop(x *index) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.index == x {
		u.index = nil
		u.held.Set(0)
	}
}

// catchUp removes what was acknowledged and reads what came, in all partitions: an id does not tell its partition.
func (u *unsynced) catchUp(ctx context.Context, x *index) error {
	var full atomic.Bool
	var g errgroup.Group
	g.SetLimit(readersMax)
	for p := range u.streams.Partitions() {
		g.Go(func() error {
			err := u.catchUpPartition(ctx, x, p)
			switch {
			case errors.Is(err, errFull):
				full.Store(true)
			case err != nil:
				return fmt.Errorf("claimed: unsynced claims of partition %d: %w", p, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if full.Load() {
		return errFull
	}
	return nil
}

func (u *unsynced) catchUpPartition(ctx context.Context, x *index, p int) error {
	unread, err := u.streams.Unread(ctx, p, models.GroupSyncer)
	if err != nil {
		return err
	}
	from := x.advance(p, unread.First())
	for {
		page, err := u.streams.Entries(ctx, p, from, pageSize)
		if err != nil {
			return err
		}
		from, err = x.add(p, page)
		if err != nil || len(page) < pageSize {
			return err
		}
	}
}
