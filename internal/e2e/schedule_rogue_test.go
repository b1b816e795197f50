package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// The controls of the schedules: one more part works beside the real ones, and is broken as somebody's was. Within a few seeds
// the accounts must tell of it.

// rogueSeeds is within how many seeds a broken part must be caught. The first or second does it, unless the machine is so
// busy that hardly a claim is made.
const rogueSeeds = 10

func TestControlsOfSchedules(t *testing.T) {
	t.Parallel()
	l := newLane(t, false)
	for _, one := range []struct {
		name  string
		rogue func(h *house, stop <-chan struct{})
	}{
		{"eviction without a look at what MySQL lacks", again(5*time.Millisecond, evictBlindly)},
		{"a key that expires is loaded from MySQL", again(300*time.Millisecond, expireAndReload)},
		{"a consumer acknowledges before it commits", ackFirst},
	} {
		t.Run(one.name, func(t *testing.T) {
			for seed := uint64(1); seed <= rogueSeeds; seed++ {
				found := report(nil)
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					p := controlPlan(seed)
					found = runPlan(t, l, &p, one.rogue).wrong
				})
				if len(found) > 0 {
					t.Logf("caught with seed %d: %q", seed, found)
					return
				}
			}
			require.Fail(t, "nobody noticed")
		})
	}
}

// controlPlan is a plan for a broken part: short, nothing else goes wrong, and much is on its way.
func controlPlan(seed uint64) plan {
	p := planOf(seed, false)
	p.control, p.lasts, p.faults, p.settings["DIBS_FLUSH_INTERVAL"] = true, 1500*time.Millisecond, nil, "500ms"
	for i := range p.campaigns {
		p.campaigns[i].HoldFor, p.campaigns[i].Kind = "", "" // nobody waits for the end of a hold, and rogues know of no packets
	}
	return p
}

// The same plans without a rogue are clean, or the controls say nothing.
func TestControlsOfSchedulesAreCleanWithoutARogue(t *testing.T) {
	t.Parallel()
	p := controlPlan(1)
	require.Empty(t, runPlan(t, newLane(t, false), &p, nil).wrong)
}

// again has a rogue try each campaign in turn.
func again(every time.Duration, one func(ctx context.Context, h *house, d *drama)) func(h *house, stop <-chan struct{}) {
	return func(h *house, stop <-chan struct{}) {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(every):
			}
			one(h.t.Context(), h, pick(h.dramas, i))
		}
	}
}

// evictBlindly takes a campaign out of Redis as the evictor does, idle or not, whatever MySQL has of it.
func evictBlindly(ctx context.Context, h *house, d *drama) {
	var epoch, synced int64
	err := h.db.QueryRowContext(ctx, "SELECT epoch, synced_seq FROM campaigns WHERE id = ? AND residency = 'resident'", d.ID).Scan(&epoch, &synced)
	if err != nil || synced == 0 {
		return
	}
	k := lua.KeysOf(d.ID, lua.PartitionOf(d.ID, h.partitions))
	state, err := h.scripts.State(ctx, d.ID)
	if err != nil || state.Epoch != epoch || state.Status != models.StatusOpen || state.Seq == synced {
		return // the hazard is what is on its way
	}
	_, _ = h.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Unlink(ctx, k.State, k.Users, k.Keys)
		pipe.Set(ctx, k.Evicted, fmt.Sprintf("%d:%d", epoch, synced), 0)
		return nil
	})
	_, _ = h.db.ExecContext(ctx, "UPDATE campaigns SET residency = 'evicted' WHERE id = ? AND epoch = ?", d.ID, epoch)
}

// expireAndReload does what an EXPIRE on the stock and a loader do that takes an absent key for one that was never there.
func expireAndReload(ctx context.Context, h *house, d *drama) {
	k := lua.KeysOf(d.ID, lua.PartitionOf(d.ID, h.partitions))
	var claimed, synced int64
	if h.db.QueryRowContext(ctx, "SELECT claimed, synced_seq FROM campaigns WHERE id = ?", d.ID).Scan(&claimed, &synced) != nil || synced == 0 {
		return
	}
	if n, err := h.rdb.Exists(ctx, k.State).Result(); err != nil || n == 0 {
		return
	}
	_ = h.rdb.HSet(ctx, k.State, "taken", strconv.FormatInt(claimed, 10), "seq", strconv.FormatInt(synced, 10)).Err()
}

// ackFirst is one more consumer of the group, which says yes before anything is committed, and dies with what it took.
func ackFirst(h *house, stop <-chan struct{}) {
	ctx := h.t.Context()
	for {
		select {
		case <-stop:
			return
		default:
		}
		for p := range h.partitions {
			read, err := h.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: "syncer", Consumer: "rogue", Streams: []string{lua.StreamKey(p), ">"}, Count: 1, Block: 20 * time.Millisecond,
			}).Result()
			if err != nil {
				continue
			}
			for _, entry := range read[0].Messages {
				_ = h.rdb.XAck(ctx, lua.StreamKey(p), "syncer", entry.ID).Err()
			}
		}
	}
}
