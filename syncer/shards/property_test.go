package shards_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/models"
	"dibs/syncer/lots"
	"dibs/syncer/shards"
)

// Movers die between any two steps, shards are loaded and evicted, and
// servers are restored. Each unit is sold once.
func TestProperty_EachUnitIsSoldOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Pick(6, 80)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{sale: newSale(t, 60, 3), dice: rand.New(rand.NewPCG(seed, 1)), total: 60}
			for range 50 {
				w.step()
			}
			w.rest()
			w.requireSettled(w.total)
			for w.refill(1, 1).SoldOutFrom == 0 {
				w.take(1, 100)
			}
			w.Sync()
			require.Equal(t, w.total, w.Campaign(w.id).Claimed)
			w.requireSettled(w.total)
		})
	}
}

type world struct {
	*sale
	dice  *rand.Rand
	total int64
	dumps []syncertest.Dump
	older []syncertest.RedisDump
}

func (w *world) step() {
	shard := 1 + w.dice.IntN(w.shards)
	switch w.dice.IntN(12) {
	case 0:
		w.Sync()
		require.NoError(w.T, w.Loader().Reload(w.T.Context(), w.shard(shard)))
	case 1:
		w.Sync()
		w.Evict(0)
	case 2, 3:
		require.NoError(w.T, w.Load(w.shard(shard)))
		w.take(shard, 1)
	case 4:
		w.dumps = append(w.dumps, syncertest.DumpOf(w.T, w.DB))
	case 5:
		w.older = append(w.older, syncertest.DumpRedis(w.T, w.Redis))
	case 6:
		w.restoreMySQL()
	case 7:
		w.rollBackRedis()
	case 8:
		w.total = 50 + w.dice.Int64N(30)
		w.setTotal(w.total)
	default:
		w.refillAndDie(shard)
	}
}

func (w *world) restoreMySQL() {
	if len(w.dumps) == 0 {
		return
	}
	w.Sync() // a flush in progress would be of another time
	require.NoError(w.T, w.dumps[w.dice.IntN(len(w.dumps))].Restore(w.DB))
	w.dumps = nil
	w.older = nil // nothing can restore what both servers lose at once
	w.heal()
}

// rollBackRedis restores an earlier Redis.
// An operator gives its lost claims up.
func (w *world) rollBackRedis() {
	if len(w.older) == 0 {
		return
	}
	w.Sync()
	w.older[w.dice.IntN(len(w.older))].Restore(w.T, w.Redis)
	w.older = nil
	w.dumps = nil
	w.heal()
}

func (w *world) heal() {
	w.T.Helper()
	w.rest()
	require.NoError(w.T, w.Maintainer().Attend(w.T.Context()))
	w.rest()
	w.Repair(w.id, true)
	w.rest()
}

func (w *world) rest() {
	w.T.Helper()
	for range 4 {
		w.Sync()
		w.check()
	}
	for shard := 1; shard <= w.shards; shard++ {
		require.NoError(w.T, w.Load(w.shard(shard)))
	}
	w.Sync()
}

func (w *world) refillAndDie(shard int) {
	m := shards.New(w.DB, w.Scripts, appliedFirst{w.sale}, nil)
	ctx, die := context.WithCancel(w.T.Context())
	defer die()
	m.Observe(func(step string) {
		w.apply(step)
		if w.dice.IntN(4) == 0 {
			die()
		}
	})
	_, err := m.Refill(ctx, w.id, models.Need{Shard: shard, Shards: w.shards, Units: 1 + w.dice.Int64N(30), Within: time.Second})
	// nothing applies what arrives while it waits
	isAway := errors.Is(err, lots.ErrAway)
	if ctx.Err() == nil && !isAway {
		require.NoError(w.T, err)
	}
}
