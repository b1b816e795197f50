package shards

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// rain is a packet campaign of four shards on real servers, and a mover.
type rain struct {
	*syncertest.Stack

	mover *Mover
	id    string
	given []string // packets that users were told are theirs
}

func newRain(t *testing.T, packets int) *rain {
	t.Helper()
	r := &rain{Stack: syncertest.NewStack(t)}
	rdb, err := lua.Connect(r.Server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	r.Scripts = syncertest.ScriptsOn(t, rdb, 1)
	r.id = r.Create(0, func(c *models.Campaign) {
		c.Kind, c.Currency, c.SenderID, c.Shards = models.KindPacket, "CNY", "boss", 4
	})
	r.AddPackets(r.id, syncertest.ListOf("p", packets))
	r.mover = New(r.DB, r.Scripts, r.Hydrator(), syncertest.Quiet(), nil)
	return r
}

func (r *rain) shard(n int) string { return models.ShardID(r.id, n) }

func (r *rain) refill(shard int, units int64) models.Refill {
	r.T.Helper()
	refill, err := r.mover.Refill(r.T.Context(), r.id, models.Need{Shard: shard, Units: units})
	require.NoError(r.T, err)
	return refill
}

// take claims packets in a shard that has them.
func (r *rain) take(shard, n int) {
	r.T.Helper()
	for _, reply := range r.Claim(r.shard(shard), syncertest.Asks(fmt.Sprint(shard, "-", len(r.given)), n)...) {
		require.Equal(r.T, models.OutcomeClaimed, reply.Outcome)
		r.given = append(r.given, reply.Claim.PacketID)
	}
}

// inLists are the packets that Redis gives away in a shard.
func (r *rain) inLists(shard int) (ids []string) {
	r.T.Helper()
	for _, list := range r.Redis.ZRange(r.T.Context(), r.Scripts.KeysOf(r.shard(shard)).Waves, 0, -1).Val() {
		ids = append(ids, r.Redis.LRange(r.T.Context(), list, 0, -1).Val()...)
	}
	slices.Sort(ids)
	return ids
}

// begin begins a move as it is planned, and takes it no further.
func (r *rain) begin(shard int, kind models.MoveKind, units int64) (*models.Campaign, *models.StockMove) {
	r.T.Helper()
	p, err := r.mover.books.look(r.T.Context(), r.id)
	require.NoError(r.T, err)
	move, err := r.mover.books.begin(r.T.Context(), &p.books[shard-1], kind, units)
	require.NoError(r.T, err)
	require.NotNil(r.T, move)
	return &p.books[shard-1], move
}

func (r *rain) rebuild(shard int) {
	r.T.Helper()
	_, err := r.Hydrator().Rebuild(r.T.Context(), r.shard(shard))
	require.NoError(r.T, err)
}

// sellOut has users take what is left in one shard, and expects that each packet was given once, and that all books agree.
func (r *rain) sellOut(packets int) {
	r.T.Helper()
	for until := time.Now().Add(time.Minute); ; {
		require.True(r.T, time.Now().Before(until), "%d of %d were given", len(r.given), packets)
		if refill := r.refill(4, 1); refill.SoldOutFrom > 0 {
			break
		}
		view := r.mover.redis.Shards(r.T.Context(), []string{r.shard(4)})[0]
		r.take(4, int(view.Free()))
	}
	r.Sync()
	slices.Sort(r.given)
	require.Len(r.T, slices.Compact(slices.Clone(r.given)), packets, "%d were given: %v", len(r.given), r.given)
	require.Len(r.T, r.given, packets)
	require.Empty(r.T, syncertest.ParkedIDs(r.T, r.DB))
	require.Empty(r.T, r.Compare(r.id).Differences)
}

// A shard that is evicted, or lost while a move is open, gets by its load the packets that MySQL says are its own. A late answer to the
// move changes nothing.
func TestALoadBringsAShardItsPackets(t *testing.T) {
	t.Parallel()
	r := newRain(t, 40)
	r.refill(1, 8)
	r.take(1, 3)
	r.refill(2, 2)
	r.Sync()
	had := r.inLists(1)
	require.NotEmpty(t, had)
	require.Positive(t, r.Evict(0))
	require.Empty(t, r.inLists(1))
	require.NoError(t, r.Hydrate(r.shard(1)))
	require.Equal(t, had, r.inLists(1))
	require.NoError(t, r.Hydrate(r.shard(2)))

	two, grant := r.begin(2, models.MoveGrant, 5)
	before := r.inLists(2)
	r.rebuild(2)
	require.Len(t, r.inLists(2), len(before)+5, "the grant is in the load")
	require.NoError(t, r.mover.complete(t.Context(), two, grant))
	require.Len(t, r.inLists(2), len(before)+5)

	one, recall := r.begin(1, models.MoveRecall, 4)
	amount, err := r.mover.redis.Move(t.Context(), one, recall)
	require.NoError(t, err)
	require.Equal(t, []int64{4, 4}, []int64{amount, int64(len(recall.Packets))})
	require.Len(t, r.inLists(1), len(had)-4)
	r.rebuild(1)
	require.Equal(t, had, r.inLists(1), "nothing came back to the reserve yet")
	require.NoError(t, r.mover.books.finish(t.Context(), recall, amount))
	require.Empty(t, r.Compare(r.id).Differences)
	r.sellOut(40)
}

// An open recall that another process completes gives the reserve the packets that Redis gave up, and no others.
func TestAnyProcessCompletesAMoveOfPackets(t *testing.T) {
	t.Parallel()
	r := newRain(t, 30)
	r.refill(1, 10)
	one, recall := r.begin(1, models.MoveRecall, 4)
	_, err := r.mover.redis.Move(t.Context(), one, recall)
	require.NoError(t, err)
	require.NoError(t, r.Hydrate(r.shard(2)))
	two, grant := r.begin(2, models.MoveGrant, 3)
	require.NotEqual(t, one.ID, two.ID)
	require.Len(t, grant.Packets, 3)
	done, err := New(r.DB, r.Scripts, r.Hydrator(), syncertest.Quiet(), nil).Look(t.Context())
	require.NoError(t, err)
	require.Positive(t, done)
	require.Empty(t, r.Compare(r.id).Differences)
	r.sellOut(30)
}

// A shard that went back behind a recall has packets again that others have by now. It is put right within a look.
func TestAShardThatForgotARecallGivesNoPacketTwice(t *testing.T) {
	t.Parallel()
	r := newRain(t, 20)
	r.refill(1, 6)
	keys := r.Scripts.KeysOf(r.shard(1))
	state := r.Redis.HGetAll(t.Context(), keys.State).Val()
	list := keys.Packets(r.Campaign(r.shard(1)).Epoch, 0)
	packets := r.Redis.LRange(t.Context(), list, 0, -1).Val()
	one, recall := r.begin(1, models.MoveRecall, 3)
	require.NoError(t, r.mover.complete(t.Context(), one, recall))
	require.NoError(t, r.Redis.HSet(t.Context(), keys.State, state).Err())
	require.NoError(t, r.Redis.Del(t.Context(), list).Err())
	require.NoError(t, r.Redis.RPush(t.Context(), list, packets).Err())
	require.NotEmpty(t, r.Compare(r.id).Differences)
	_, err := r.mover.Look(t.Context())
	require.NoError(t, err)
	require.Len(t, r.inLists(1), len(packets)-3)
	r.sellOut(20)
}

// A comparison finds packets that a shard lost in Redis, and that MySQL has elsewhere; a repair brings back the former.
func TestAComparisonKnowsThePacketsOfEachShard(t *testing.T) {
	t.Parallel()
	r := newRain(t, 20)
	r.refill(1, 6)
	r.take(1, 2)
	r.Sync()
	require.Empty(t, r.Compare(r.id).Differences)
	before := r.inLists(1)
	list := r.Scripts.KeysOf(r.shard(1)).Packets(r.Campaign(r.shard(1)).Epoch, 0)
	require.NoError(t, r.Redis.RPop(t.Context(), list).Err())
	found := r.Compare(r.id)
	require.Len(t, found.Differences, 1)
	require.Contains(t, found.Differences[0], "shard 1: redis has")
	r.Repair(r.id, reconcile.RepairHow{})
	require.Equal(t, before, r.inLists(1))
	require.Empty(t, r.Compare(r.id).Differences)

	r.Exec("UPDATE packets SET shard = 0 WHERE campaign_id = ? AND shard = 1 AND claim_id IS NULL LIMIT 1", r.id)
	require.Len(t, r.Compare(r.id).Differences, 3, "of the shard's rows, of its list, and of the reserve")
}

// Packets whose time of release has not come stay in the reserve. While there are others nobody is told of them.
func TestPacketsAreDealtOnceTheyAreReleased(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		rdb, err := lua.Connect(testenv.SharedRedis(t).URL())
		require.NoError(t, err)
		t.Cleanup(func() { _ = rdb.Close() })
		scripts := syncertest.ScriptsOn(t, rdb, syncertest.Partitions)
		repository := syncertest.NewCampaigns(t, db, scripts)
		c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), 0)
		c.Kind, c.Currency, c.Shards = models.KindPacket, "CNY", 2
		_, _, err = repository.Create(t.Context(), c)
		require.NoError(t, err)
		add := func(prefix string, n int, at *time.Time) {
			_, err := repository.AddPackets(t.Context(), c.ID, syncertest.ReleasedAt(syncertest.ListOf(prefix, n), at))
			require.NoError(t, err)
		}
		m := New(db, scripts, syncertest.NewHydrator(t, db, scripts), syncertest.Quiet(), nil)
		refill := func(units int64) models.Refill {
			got, err := m.Refill(t.Context(), c.ID, models.Need{Shard: 2, Units: units})
			require.NoError(t, err)
			return got
		}
		require.Equal(t, models.Refill{SoldOutFrom: 1}, refill(1), "there are none")
		add("later", 5, syncertest.InAnHour())
		require.Equal(t, models.Refill{SoldOutFrom: 1, NotReleased: true}, refill(1))
		add("now", 3, nil)
		add("early", 2, new(time.Now().Add(-time.Hour)))
		require.Equal(t, models.Refill{}, refill(5), "of two times of release, by two moves")
		require.Equal(t, models.Refill{SoldOutFrom: 6, NotReleased: true}, refill(6))
		var rows []models.StockMove
		require.NoError(t, db.Where("campaign_id = ?", c.ID).Order("shard, no").Find(&rows).Error)
		require.Len(t, rows, 2)
		require.Equal(t, []int64{3, 2}, []int64{*rows[0].Amount, *rows[1].Amount})
		var dealt []string
		require.NoError(t, db.Raw("SELECT id FROM packets WHERE campaign_id = ? AND shard = 2 ORDER BY id", c.ID).Scan(&dealt).Error)
		require.Equal(t, []string{"early1", "early2", "now1", "now2", "now3"}, dealt)
		require.NoError(t, db.Exec("UPDATE packets SET release_at = ? WHERE campaign_id = ? AND id LIKE 'later%'", time.Now().UTC().Add(-time.Second), c.ID).Error)
		require.NoError(t, db.Exec("UPDATE packet_batches SET release_at = ? WHERE campaign_id = ? AND packets = 5", time.Now().UTC().Add(-time.Second), c.ID).Error)
		require.Equal(t, models.Refill{}, refill(10), "their time has come")
	})
}

// Two grants that pick the same packets: one of them changes nothing, and looks again.
func TestTwoGrantsDoNotShareAPacket(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repository := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t))
		c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), 0)
		c.Kind, c.Currency, c.Shards = models.KindPacket, "CNY", 2
		_, _, err := repository.Create(t.Context(), c)
		require.NoError(t, err)
		_, err = repository.AddPackets(t.Context(), c.ID, syncertest.ListOf("p", 10))
		require.NoError(t, err)
		require.NoError(t, db.Exec("UPDATE lots SET residency = ? WHERE campaign_id = ?", models.ResidencyResident, c.ID).Error)
		m := New(db, nil, nil, syncertest.Quiet(), nil)
		p, err := m.books.look(t.Context(), c.ID)
		require.NoError(t, err)
		s, raced := m.books.(*store), false
		s.steps.Observe(func(step string) {
			if step == "picked" && !raced {
				raced = true
				other, err := s.begin(context.WithoutCancel(t.Context()), &p.books[1], models.MoveGrant, 4)
				require.NoError(t, err)
				require.Len(t, other.Packets, 4)
			}
		})
		move, err := s.begin(t.Context(), &p.books[0], models.MoveGrant, 6)
		require.NoError(t, err)
		require.Nil(t, move)
		move, err = s.begin(t.Context(), &p.books[0], models.MoveGrant, 7)
		require.NoError(t, err)
		require.Equal(t, []any{int64(6), 6}, []any{move.Want, len(move.Packets)})
		after, err := s.look(t.Context(), c.ID)
		require.NoError(t, err)
		require.Equal(t, []int64{0, 6, 4}, []int64{after.reserve, after.books[0].Total, after.books[1].Total})
	})
}
