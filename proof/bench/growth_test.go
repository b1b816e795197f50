package bench_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

const (
	growthWindow  = 200_000 // measured claims at each size
	growthDrivers = 4       // that send calls of 128
)

// growthSizes are the claims of one campaign when measured, and
// growthCampaigns the numbers of campaigns.
var growthSizes, growthCampaigns = []int{10_000, 1_000_000, 10_000_000}, []int{1, 100, 10_000}

// benchGrowth measures each process's cost of a claim as a
// campaign, and the number of campaigns, grow.
func benchGrowth(b *testing.B, s *sheet) {
	s.rounds = 1
	m := &many{whole: newWhole(b)}
	r := m.broker
	s.Facts = m.facts(b)
	m.startBoth(b)
	syncer := m.start(b, "syncer") // trims the stream
	for _, n := range growthCampaigns {
		s.spread(b, m, syncer, n)
	}
	s.grow(b, m, syncer)
	const article, alone = "article's script, one claim a call", "claims alone, 128 a call"
	s.alone(b, r, alone)
	s.article(b, r, article)
	s.ratio(b, "booked in MySQL, batches of 256 over HTTP / article's script, which books nothing", spreadName(1)+": claims/s", article, 1)
	s.ratioAtMost(b, "Redis CPU for everything / for claims alone", sizeName(growthSizes[0])+": Redis", alone+": Redis CPU in all", 1.25)
	first, last := growthSizes[0], amount(growthSizes[len(growthSizes)-1])
	s.straight(b, fmt.Sprintf("at %d claims / at %d", last, first), sizeName(last), sizeName(first), "Redis", "consumer", "SQL server")
	for _, n := range growthCampaigns[1:] {
		s.straight(b, fmt.Sprintf("%d campaigns / 1", n), spreadName(n), spreadName(1), "api", "Redis", "consumer", "SQL server")
	}
	s.note("Claims of one unit, each of a user of its own, until MySQL has them; processor time in µs a claim.")
	s.note("One campaign that grows: calls of 128 claims. Many campaigns: batches of 256 over HTTP, each claim of a campaign drawn by chance.")
}

func sizeName(n int) string   { return fmt.Sprintf("one campaign of %d claims", n) }
func spreadName(n int) string { return fmt.Sprintf("%d campaigns", n) }

// straight requires a claim's cost to stay within a fifth of the first.
func (s *sheet) straight(b *testing.B, name, over, under string, processes ...string) {
	s.ratio(b, "claims/s "+name, over+": claims/s", under+": claims/s", 0.8)
	for _, process := range processes {
		s.ratioAtMost(b, "CPU of "+process+" "+name, over+": "+process, under+": "+process, 1.2)
	}
}

// alone sends calls of 128 claims, without reader, trimming or MySQL.
func (s *sheet) alone(b *testing.B, r *broker, name string) {
	meta := r.campaign(b, plenty)
	before := r.usage(b)
	r.claimUpTo(b, meta, 0, amount(growthWindow))
	s.since(b, r, before, name, int64(amount(growthWindow)))
}

// measured runs claims and adds each process's cost, until MySQL has them.
func (s *sheet) measured(b *testing.B, m *many, syncer *child, name string, claims int, run func()) {
	before := []time.Duration{m.api.cpu(b), m.broker.usage(b).cpu, m.consumer.cpu(b), syncer.cpu(b), cpuOf(b, m.store.pid)}
	booked, started := m.booked(b), time.Now()
	run()
	require.Eventually(b, func() bool { return m.booked(b) == booked+int64(claims) }, 5*time.Minute, 10*time.Millisecond)
	s.add(name+": claims/s", "claims/s", float64(claims)/time.Since(started).Seconds())
	after := []time.Duration{m.api.cpu(b), m.broker.usage(b).cpu, m.consumer.cpu(b), syncer.cpu(b), cpuOf(b, m.store.pid)}
	for i, process := range []string{"api", "Redis", "consumer", "syncer", "SQL server"} {
		s.add(name+": "+process, "µs/claim", perClaim(after[i]-before[i], int64(claims)))
	}
}

func (m *many) booked(b *testing.B) (claims int64) {
	b.Helper()
	require.NoError(b, m.store.sql.QueryRowContext(b.Context(), "SELECT COALESCE(SUM(synced_seq), 0) FROM campaigns").Scan(&claims))
	return claims
}

// grow fills one campaign and measures on the way.
func (s *sheet) grow(b *testing.B, m *many, syncer *child) {
	const id = "growing"
	m.openAll(b, []string{id})
	var c models.Campaign
	require.NoError(b, m.store.gorm.WithContext(b.Context()).Where("id = ?", id).Take(&c).Error)
	meta, err := m.broker.scripts.MetaOf(&c)
	require.NoError(b, err)
	have, window := 0, amount(growthWindow)
	for _, size := range growthSizes {
		if size = max(amount(size), growthSizes[0]); size > have {
			m.fill(b, meta, have, size)
			have = size
		}
		s.measured(b, m, syncer, sizeName(size), window, func() { m.fill(b, meta, have, have+window) })
		have += window
	}
}

// openAll makes campaigns with plenty of stock, in Redis, each
// with a claim in MySQL.
func (m *many) openAll(b *testing.B, ids []string) {
	b.Helper()
	rows := make([]models.Campaign, len(ids))
	for i, id := range ids {
		rows[i] = models.Campaign{
			ID: id, Kind: models.KindCoupon, Status: models.StatusOpen, TimeZone: "UTC", Total: plenty, Version: 1,
		}
	}
	before := m.booked(b)
	syncertest.AddCampaigns(b, m.store.gorm, rows...)
	for some := range slices.Chunk(ids, manyInBatch) {
		m.untilClaimed(b, some)
	}
	require.Eventually(b, func() bool { return m.booked(b) == before+int64(len(ids)) }, time.Minute, 10*time.Millisecond)
}

// fill takes claims from to to, and sometimes waits for MySQL,
// so that the stream stays short.
func (m *many) fill(b *testing.B, meta lua.Meta, from, to int) {
	b.Helper()
	const atOnce = 400_000
	for ; from < to; from += atOnce {
		before, end := m.booked(b), min(from+atOnce, to)
		m.broker.claimUpTo(b, meta, from, end)
		require.Eventually(b, func() bool { return m.booked(b) == before+int64(end-from) }, 5*time.Minute, 10*time.Millisecond)
	}
}

// claimUpTo sends calls of 128 claims, of users numbered from from to to.
func (r *broker) claimUpTo(b *testing.B, meta lua.Meta, from, to int) {
	b.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	group, ctx := errgroup.WithContext(b.Context())
	for range growthDrivers {
		group.Go(func() error {
			reqs := make([]lua.ClaimRequest, lua.ClaimsMax)
			for {
				at := int(next.Add(int64(len(reqs)))) - len(reqs)
				if at >= to {
					return nil
				}
				replies, _, err := r.scripts.Claim(ctx, meta, requests(reqs[:min(len(reqs), to-at)], "user-", int64(at), true))
				if err == nil {
					err = allTaken(replies)
				}
				if err != nil {
					return err
				}
			}
		})
	}
	require.NoError(b, group.Wait())
}

// spread claims over HTTP from so many campaigns.
func (s *sheet) spread(b *testing.B, m *many, syncer *child, n int) {
	claims := amount(growthWindow)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("spread-%d-%d", n, i)
	}
	m.openAll(b, ids)
	s.measured(b, m, syncer, spreadName(n), claims, func() { sendBatches(b, m.api.addr, claims, ids) })
}
