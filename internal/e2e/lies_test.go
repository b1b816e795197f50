package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/lua"
	"dibs/models"
)

// TestBooksTellEveryLie takes accounts that agree, falsifies one thing at a time, and expects that it is named: a check that
// sees nothing would pass every test.
func TestBooksTellEveryLie(t *testing.T) {
	t.Parallel()
	p := newInProcess(t, swaps{})
	p.startConsumer()
	c := openCampaign(t, p.urls[0], campaign{Total: 100})
	tally, err := crowd.Run(t.Context(), crowd.Plan{
		BaseURLs: p.urls, CampaignID: c.ID, Users: 20, Connections: 5, Quantity: func(user int) int64 { return int64(user%2) + 1 },
	})
	require.NoError(t, err)
	truth := p.books(c, tally)
	require.Empty(t, truth.violations(t.Context()), "the truth")
	truth.within = 300 * time.Millisecond
	var one models.Claim
	for _, one = range truth.tally.Claims {
		break
	}
	state := lua.KeysOf(c.ID, 0).State

	change := func(alter func(claim *models.Claim)) func(b *books) {
		return func(b *books) {
			claim := one
			alter(&claim)
			b.tally.Claims[one.ID] = claim
		}
	}
	sql := func(statement string, args ...any) func(*books) {
		return func(*books) {
			_, err := p.db.ExecContext(t.Context(), statement, args...)
			require.NoError(t, err)
		}
	}
	for _, lie := range []struct {
		name       string
		tell, undo func(b *books)
		words      string
	}{
		{name: "a yes that no one booked", words: "1 accepted claims have no row", tell: func(b *books) {
			b.tally.Claims["phantom"] = models.Claim{ID: "phantom", Quantity: 1, Seq: 21}
		}},
		{name: "a row that no one was told of", words: "no one was told of it", tell: func(b *books) { delete(b.tally.Claims, one.ID) }},
		{name: "a row that is not what the user in doubt asked for", words: "the user asked for 3", tell: func(b *books) {
			delete(b.tally.Claims, one.ID)
			b.tally.InDoubt[one.UserID] = 3
		}},
		{name: "another user", words: "the crowd was told", tell: change(func(claim *models.Claim) { claim.UserID = "somebody" })},
		{name: "another quantity", words: "the crowd was told", tell: change(func(claim *models.Claim) { claim.Quantity++ })},
		{name: "another time", words: "the crowd was told", tell: change(func(claim *models.Claim) {
			claim.ClaimedAt = models.NewTime(claim.ClaimedAt.Add(time.Millisecond))
		})},
		{name: "one seq twice", words: "both have seq", tell: change(func(claim *models.Claim) { claim.Seq = claim.Seq%20 + 1 })},
		{name: "a limit that was broken", words: "per_user: ", tell: func(b *books) { b.campaign.PerUser = 1 }},
		{name: "a day's limit that was broken", words: "per_user_per_day: ", tell: func(b *books) { b.campaign.PerUserPerDay = 1 }},
		{name: "units left over", words: "more was wanted", tell: func(b *books) { b.soldOut = true }},
		{name: "a contradiction in an answer", words: "first this, again that", tell: func(b *books) {
			b.tally.Faults = []string{"first this, again that"}
		}},
		{name: "a refusal that is none", words: "internal", tell: func(b *books) { b.tally.Refused["internal"]++ }},
		{name: "remaining too high in MySQL", words: "remaining in MySQL",
			tell: sql("UPDATE lots SET redis_total = total + 1 WHERE id = ?", c.ID),
			undo: sql("UPDATE lots SET redis_total = 0 WHERE id = ?", c.ID)},
		{name: "claimed too high in MySQL", words: "claimed in MySQL",
			tell: sql("UPDATE lots SET claimed = claimed + 1 WHERE id = ?", c.ID),
			undo: sql("UPDATE lots SET claimed = claimed - 1 WHERE id = ?", c.ID)},
		{name: "a flush that counts too much", words: "units of stock_flushes",
			tell: sql("UPDATE stock_flushes SET units = units + 1 WHERE campaign_id = ? LIMIT 1", c.ID),
			undo: sql("UPDATE stock_flushes SET units = units - 1 WHERE campaign_id = ? ORDER BY units DESC LIMIT 1", c.ID)},
		{name: "a hole in the rows' seq", words: "a hole or a double",
			tell: sql("UPDATE claims SET seq = 1000 WHERE campaign_id = ? AND seq = 7", c.ID),
			undo: sql("UPDATE claims SET seq = 7 WHERE campaign_id = ? AND seq = 1000", c.ID)},
		{name: "a parked event", words: "parked events",
			tell: sql("INSERT INTO parked_events (id, campaign_id, reason, payload, parked_at) VALUES ('x', ?, 'x', 'x', NOW())", c.ID),
			undo: sql("DELETE FROM parked_events")},
		{name: "taken too high in Redis", words: "taken in Redis, units of the rows",
			tell: func(*books) { require.NoError(t, p.rdb.HIncrBy(t.Context(), state, "taken", 1).Err()) },
			undo: func(*books) { require.NoError(t, p.rdb.HIncrBy(t.Context(), state, "taken", -1).Err()) }},
		{name: "a reader that missed one", words: "never saw claim", tell: func(b *books) {
			b.readers = map[string]*reader{"finance": p.finance.without(one.ID)}
		}},
		{name: "one claim twice in the stream", words: "is in the stream twice", tell: func(*books) { repeatFirstEntry(t, p) }},
	} {
		require.Empty(t, truth.violations(t.Context()), "the truth, before "+lie.name)
		b := truth
		b.tally = merged(truth.tally)
		lie.tell(&b)
		requireViolation(t, b.violations(t.Context()), lie.words)
		if lie.undo != nil {
			lie.undo(&b)
		}
	}
}

// without is what a reader would know that missed one claim.
func (r *reader) without(id string) *reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	other := newReader()
	maps.Copy(other.events, r.events)
	delete(other.events, id)
	return other
}

// repeatFirstEntry adds the entry of the first claim again, and waits until the finance service read it.
func repeatFirstEntry(t *testing.T, p *inProcess) {
	t.Helper()
	all, err := p.rdb.XRange(t.Context(), lua.StreamKey(0), "-", "+").Result()
	require.NoError(t, err)
	first := slices.IndexFunc(all, func(m redis.XMessage) bool {
		payload, _ := m.Values["payload"].(string)
		return strings.Contains(payload, string(models.EventClaimAccepted))
	})
	require.NotEqual(t, -1, first)
	require.NoError(t, p.rdb.XAdd(context.WithoutCancel(t.Context()), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: all[first].Values}).Err())
	require.Eventually(t, func() bool {
		_, faults := p.finance.of("")
		return len(faults) > 0
	}, upTimeout, pollEvery)
}
