package claiming

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api/wire"
	"dibs/api/workers"
	"dibs/lua"
	"dibs/models"
)

// books are the definitions of campaigns, in a MySQL that can be away.
type books struct {
	Campaigns

	campaign models.Campaign
	away     error
	asked    int
}

func (b *books) Get(context.Context, string) (models.Campaign, error) {
	b.asked++
	return b.campaign, b.away
}

func guardedLane(meta lua.Meta, b *books) *lane {
	cfg := Config{Campaigns: b, Workers: &workers.Group{}, Logger: slog.New(slog.DiscardHandler), Clock: time.Now}
	return newLane(&cfg, newMetrics(nil), meta)
}

// A claim of many that found too few says nothing of a claim of one.
func TestSoldOut_IsOfClaimsThatAreAsLarge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &soldOut{}
	s.learn(0, now, 6, errSoldOut)
	require.Nil(t, s.covers(5, now))
	require.NotNil(t, s.covers(6, now))
	require.NotNil(t, s.covers(7, now))
	require.Nil(t, s.covers(6, now.Add(soldOutFor)))
}

// One claim that the script does not take would have it refuse the whole call, and others' claims with it.
func TestAdmit_APacketClaimIsOfOne(t *testing.T) {
	t.Parallel()
	packets, coupons := guardedLane(lua.Meta{ID: "p", Kind: models.KindPacket}, nil), guardedLane(lua.Meta{ID: "c", Kind: models.KindCoupon}, nil)
	for _, quantity := range []int64{0, 2} {
		p := packets.admit(nil, &lua.ClaimRequest{UserID: "u", Quantity: quantity}, time.Now())
		require.NotNil(t, p)
		require.Equal(t, wire.CodeInvalid, p.Code)
	}
	require.Nil(t, packets.admit(nil, &lua.ClaimRequest{UserID: "u", Quantity: 1}, time.Now()))
	require.Nil(t, coupons.admit(nil, &lua.ClaimRequest{UserID: "u", Quantity: 2}, time.Now()))
}

// After a call that failed, MySQL is asked how far Redis must be, until it has answered once.
func TestAskBooks_GoesOnUntilMySQLAnswers(t *testing.T) {
	t.Parallel()
	b := &books{away: errors.New("away"), campaign: models.Campaign{Epoch: 2, SyncedSeq: 7, TSeq: 5}}
	l := guardedLane(lua.Meta{ID: models.ShardID("spring", 1), Kind: models.KindCoupon}, b)
	l.askBooks()
	require.Zero(t, b.asked, "no call failed")
	l.failures.Add(1)
	l.askBooks()
	require.Equal(t, lua.Position{}, l.latest.position())
	b.away = nil
	l.askBooks()
	require.Equal(t, lua.Position{Epoch: 2, Seq: 7, TSeq: 5}, l.latest.position())
	l.askBooks()
	require.Equal(t, 2, b.asked, "it has answered")
	l.failures.Add(1)
	l.askBooks()
	require.Equal(t, 3, b.asked)
}

// mover notes how it was asked.
type mover struct {
	need     models.Need
	deadline time.Time
}

func (m *mover) Refill(ctx context.Context, _ string, need models.Need) (models.Refill, error) {
	m.need = need
	m.deadline, _ = ctx.Deadline()
	return models.Refill{}, nil
}

// Claims wait for a refill no longer than they are held, and a refill that hangs ends.
func TestRefill_IsBounded(t *testing.T) {
	t.Parallel()
	m := &mover{}
	l := guardedLane(lua.Meta{ID: models.ShardID("spring", 2), Kind: models.KindCoupon}, nil)
	l.cfg.Mover = m
	_, err := l.refill(models.Need{Units: 3})
	require.NoError(t, err)
	require.Equal(t, models.Need{Shard: 2, Units: 3, Within: holdMost}, m.need)
	require.WithinDuration(t, time.Now().Add(refillTimeout), m.deadline, refillTimeout)
}
