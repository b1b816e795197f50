package shards_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/shards"
	"dibs/syncer/writer"
)

// shop is a campaign of 40 units in two shards, whose lots Redis holds, and which its MySQL, an SQLite here, has in full: each shard has 10
// units, the reserve 20.
type shop struct {
	*syncertest.Stack

	id    string
	mover *shards.Mover
}

func newShop(t *testing.T) *shop {
	t.Helper()
	server := testenv.Redis(t)
	rdb, err := lua.Connect(server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	s := &shop{Stack: &syncertest.Stack{T: t, Server: server, Redis: rdb.(*redis.Client), Scripts: syncertest.ScriptsOn(t, rdb, 3)}}
	s.DB = syncertest.OpenStore(t, sqlstore.Config{Path: filepath.Join(t.TempDir(), "dibs.db")})
	s.Writer = syncertest.StartWriter(t, writer.Config{DB: s.DB, FlushInterval: time.Millisecond})
	s.id = s.Create(40, func(c *models.Campaign) { c.Shards = 2 })
	for _, lot := range []int{1, 2, models.ReserveLot} {
		require.NoError(t, s.Hydrate(s.lot(lot)))
	}
	s.mover = s.newMover()
	return s
}

// newMover is that of another process.
func (s *shop) newMover() *shards.Mover {
	return shards.New(s.DB, s.Scripts, s.Hydrator(), syncertest.Quiet(), nil)
}

func (s *shop) lot(number int) string { return models.ShardID(s.id, number) }

func (s *shop) view(number int) *lua.ShardView {
	s.T.Helper()
	v := &s.Scripts.Shards(s.T.Context(), []string{s.lot(number)})[0]
	require.NoError(s.T, v.Err)
	return v
}

func (s *shop) refill(shard int, units int64) models.Refill {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), 5*time.Second)
	defer cancel()
	refill, err := s.mover.Refill(ctx, s.id, models.Need{Shard: shard, Units: units})
	require.NoError(s.T, err)
	return refill
}

// hash is what Redis holds of a lot, and how to bring that back.
func (s *shop) hash(number int) (restore func()) {
	s.T.Helper()
	key := s.Scripts.KeysOf(s.lot(number)).State
	was, err := s.Redis.HGetAll(s.T.Context(), key).Result()
	require.NoError(s.T, err)
	return func() {
		require.NoError(s.T, s.Redis.Del(s.T.Context(), key).Err())
		require.NoError(s.T, s.Redis.HSet(s.T.Context(), key, was).Err())
	}
}

// forget has MySQL lack all transfers of a lot behind the first ones, as after a restore.
func (s *shop) forget(number int, first int64) {
	s.T.Helper()
	s.Exec("DELETE FROM stock_moves WHERE campaign_id = ? AND shard = ? AND tseq > ?", s.id, number, first)
	s.Exec("UPDATE lots SET tseq = ?, total = (SELECT SUM(CASE kind WHEN 'units.credited' THEN units ELSE -units END) FROM stock_moves m"+
		" WHERE m.campaign_id = lots.campaign_id AND m.shard = lots.shard) WHERE id = ?", first, s.lot(number))
}

// lose has Redis lose a lot and its tombstone.
func (s *shop) lose(number int) {
	s.T.Helper()
	k := s.Scripts.KeysOf(s.lot(number))
	require.NoError(s.T, s.Redis.Del(s.T.Context(), k.State, k.Users, k.Keys, k.Evicted).Err())
}

// requireUnits sums up what the lots have and what is in flight.
func (s *shop) requireUnits(total int64) {
	s.T.Helper()
	sum := int64(0)
	lots := []int{1, 2, models.ReserveLot}
	for _, from := range lots {
		v := s.view(from)
		sum += v.Total - v.Owed
		for _, to := range lots {
			sum += v.Out[to] - s.view(to).In[from]
		}
	}
	require.Equal(s.T, total, sum)
}

// Lots that Redis holds refill each other, and are proven to be sold out, by a process that never reached MySQL.
func TestMoversGoOnWithoutMySQL(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(t *testing.T, s *shop){
		"it refuses": func(t *testing.T, s *shop) { require.NoError(t, sqlstore.Close(s.DB)) },
		"it hangs": func(t *testing.T, s *shop) {
			pool, err := s.DB.DB()
			require.NoError(t, err)
			pool.SetMaxOpenConns(1)
			held, err := pool.Conn(t.Context()) // whoever asks waits
			require.NoError(t, err)
			t.Cleanup(func() { _ = held.Close() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			c := s.Campaign(s.lot(1))
			meta, err := s.Scripts.MetaOf(&c)
			require.NoError(t, err)
			s.mover = s.newMover()
			away(t, s)
			require.Zero(t, s.refill(1, 40).SoldOutFrom)
			replies, _, err := s.Scripts.Claim(t.Context(), meta, []lua.ClaimRequest{{ID: uuid.Must(uuid.NewV7()), UserID: "u", Quantity: 40}})
			require.NoError(t, err)
			require.Equal(t, models.OutcomeClaimed, replies[0].Outcome)
			require.EqualValues(t, 1, s.refill(2, 1).SoldOutFrom)
		})
	}
}

// A lot that forgot a debit which MySQL never knew learns of it by the first round of the syncer, though no one asks it for units.
func TestALotThatForgotADebitIsToldOfIt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	rollBack := s.hash(models.ReserveLot)
	s.refill(2, 30)
	rollBack()
	require.EqualValues(t, 20, s.view(models.ReserveLot).Free(), "it would give them twice")
	_, err := s.mover.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, s.view(2).In[models.ReserveLot], s.view(models.ReserveLot).Out[2])
	s.requireUnits(40)
}

// Redis lost the reserve, and MySQL was restored to a time before it gave units away. The load finds them with the shard that has them.
func TestALoadDebitsWhatPeersWereCredited(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.refill(2, 30)
	s.Sync()
	s.forget(models.ReserveLot, 3)
	s.forget(2, 1)
	s.lose(models.ReserveLot)
	require.NoError(t, s.Hydrate(s.lot(models.ReserveLot)))
	require.EqualValues(t, 30, s.view(models.ReserveLot).Out[2])
	s.requireUnits(40)
}

// A credit of what the reserve debited before it was lost is refused: the load that came after it has the units.
func TestNoLotTakesACreditOfAnEarlierLoad(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	reserve := &models.Campaign{ID: s.lot(models.ReserveLot), Kind: models.KindCoupon}
	debited, err := s.Scripts.Debit(t.Context(), reserve, &lua.Debit{Epoch: 1, Peer: 2, Seen: 10, Units: 20})
	require.NoError(t, err)
	s.Sync()
	s.forget(models.ReserveLot, 3)
	s.lose(models.ReserveLot)
	require.NoError(t, s.Hydrate(reserve.ID))
	require.EqualValues(t, 20, s.view(models.ReserveLot).Free())
	two := &models.Campaign{ID: s.lot(2), Kind: models.KindCoupon}
	_, err = s.Scripts.Credit(t.Context(), two, &lua.Credit{Seen: s.view(2).Position, Peer: models.ReserveLot, PeerLoad: 1, Upto: debited.Upto})
	require.ErrorIs(t, err, lua.ErrPeer)
	s.requireUnits(40)
}

// MySQL has booked a debit that was never on the disk of the reserve, which then gave its units to another shard. The load goes by what
// Redis holds, and the row of the debit goes.
func TestALoadForgetsADebitThatRedisForgot(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	rollBack := s.hash(models.ReserveLot)
	reserve := &models.Campaign{ID: s.lot(models.ReserveLot), Kind: models.KindCoupon}
	_, err := s.Scripts.Debit(t.Context(), reserve, &lua.Debit{Epoch: 1, Peer: 2, Seen: 10, Units: 20})
	require.NoError(t, err)
	s.Sync()
	rollBack()
	debited, err := s.Scripts.Debit(t.Context(), reserve, &lua.Debit{Epoch: 1, Peer: 1, Seen: 10, Units: 20})
	require.NoError(t, err)
	one := &models.Campaign{ID: s.lot(1), Kind: models.KindCoupon}
	_, err = s.Scripts.Credit(t.Context(), one, &lua.Credit{Seen: s.view(1).Position, Peer: models.ReserveLot, PeerLoad: 1, Upto: debited.Upto})
	require.NoError(t, err)
	require.NoError(t, s.Scripts.Fence(t.Context(), reserve.ID, 1))
	s.Sync()
	require.NoError(t, s.Hydrate(reserve.ID))
	v := s.view(models.ReserveLot)
	require.Equal(t, []int64{30, 10, 0}, []int64{v.Out[1], v.Out[2], v.Owed})
	s.requireUnits(40)
	var rows int64
	require.NoError(t, s.DB.Raw("SELECT MAX(cumulative) FROM stock_moves WHERE campaign_id = ? AND shard = 65 AND peer = 2", s.id).Scan(&rows).Error)
	require.EqualValues(t, 10, rows)
}

// A total is lowered by what Redis took out first. Whoever dies between the two has changed nothing.
func TestATotalIsWhatTheReserveSays(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	repo := syncertest.NewCampaigns(t, s.DB, s.Scripts)
	repo.GatherBy(s.mover)
	change := func(total int64) error {
		_, err := repo.Change(t.Context(), s.id, models.Change{Total: &total})
		return err
	}
	s.Claim(s.lot(1), syncertest.Asks("u", 8)...)
	s.Sync()
	require.NoError(t, change(25), "units of the shards are gathered for it")
	s.requireUnits(25)
	var refused *models.FieldError
	require.ErrorAs(t, change(7), &refused, "8 are taken")
	s.requireUnits(25)

	_, err := s.mover.Lower(t.Context(), s.id, 15+5)
	require.NoError(t, err)
	s.requireUnits(20) // and the process dies
	_, err = s.mover.Check(t.Context())
	require.NoError(t, err)
	s.requireUnits(25)
	require.NoError(t, change(60))
	s.requireUnits(60)
	s.Sync()
	require.EqualValues(t, 60, s.Campaign(s.id).Total)
	require.Empty(t, s.Compare(s.id).Differences)
}
