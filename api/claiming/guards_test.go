package claiming

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api/wire"
	"dibs/api/workers"
	"dibs/lua"
	"dibs/models"
)

func guardedLane(meta lua.Meta) *lane {
	cfg := Config{Workers: &workers.Group{}, Logger: slog.New(slog.DiscardHandler), Clock: time.Now}
	return newLane(&cfg, newMetrics(nil), meta, &breaker{states: cfg.States, group: cfg.Workers})
}

// A claim of many that found too few says nothing of a claim of one.
func TestSoldOut_IsOfClaimsThatAreAsLarge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &soldOut{}
	s.learn(0, now, 6)
	require.Nil(t, s.covers(5, now))
	require.NotNil(t, s.covers(6, now))
	require.NotNil(t, s.covers(7, now))
	require.Nil(t, s.covers(6, now.Add(soldOutFor)))
}

// One claim that the script does not take would have it refuse the whole call, and others' claims with it.
func TestAdmit_APacketClaimIsOfOne(t *testing.T) {
	t.Parallel()
	packets, coupons := guardedLane(lua.Meta{ID: "p", Kind: models.KindPacket}), guardedLane(lua.Meta{ID: "c", Kind: models.KindCoupon})
	for _, quantity := range []int64{0, 2} {
		p := packets.admit(&Routes{}, &lua.ClaimRequest{UserID: "u", Quantity: quantity}, time.Now())
		require.NotNil(t, p)
		require.Equal(t, wire.CodeInvalid, p.Code)
	}
	require.Nil(t, packets.admit(&Routes{}, &lua.ClaimRequest{UserID: "u", Quantity: 1}, time.Now()))
	require.Nil(t, coupons.admit(&Routes{}, &lua.ClaimRequest{UserID: "u", Quantity: 2}, time.Now()))
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
	l := guardedLane(lua.Meta{ID: models.ShardID("spring", 2), Kind: models.KindCoupon, Shards: 4})
	l.cfg.Mover = m
	_, err := l.refill(models.Need{Units: 3})
	require.NoError(t, err)
	require.Equal(t, models.Need{Shard: 2, Shards: 4, Units: 3, Within: maxRefillWait}, m.need)
	require.WithinDuration(t, time.Now().Add(refillTimeout), m.deadline, refillTimeout)
}
