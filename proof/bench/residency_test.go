package bench_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/lots"
	"dibs/syncer/offset"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
)

const (
	bigClaims = 1_000_000 // of the rebuilt campaign

	residentPartitions = 64 // so that another campaign has its own stream

	othersPerCall = 16 // claims of the campaign beside, over one connection
)

// resident has the parts that load and evict campaigns, as in
// the roles, and a campaign with every claim in MySQL.
type resident struct {
	*broker
	store   *store
	loader  *lots.Loader
	evictor *lots.Keeper
	writer  *writer.Writer
	big     string
}

// benchResidency loads a campaign from MySQL into Redis and evicts it.
func benchResidency(b *testing.B, s *sheet) {
	r := newResident(b)
	s.Facts = []string{r.version(b), r.store.version(b)}
	rebuild := fmt.Sprintf("rebuild of %d claims", amount(bigClaims))
	const alone, beside = "claims of another campaign", "claims of another campaign during a rebuild"
	s.takeTurns([]func(){
		func() { s.rebuild(b, r, rebuild) },
		func() { s.others(b, r, alone, beside) },
	})
	s.ratio(b, beside+" / without", beside, alone, 0.8)
	s.goal(b, rebuild, atMost, 30)
	s.note("Rebuild by the loader of `dibs api`, with the eviction that follows it.")
	s.note(fmt.Sprintf("Another campaign: calls of %d claims over one connection, one after the other; before, during and after a rebuild.", othersPerCall))
}

func newResident(b *testing.B) *resident {
	b.Helper()
	r := &resident{broker: newBroker(b), store: stores(b)[0]}
	var err error
	r.scripts, err = lua.New(r.rdb, lua.Options{Partitions: residentPartitions})
	require.NoError(b, err)
	r.loader = lots.New(r.store.gorm, r.scripts, slog.New(slog.DiscardHandler), lots.Settle, nil)
	r.evictor = lots.NewKeeper(r.loader, lots.MinIdle, nil)
	r.writer = syncertest.StartWriter(b, writer.Config{DB: r.store.gorm, Partitions: residentPartitions, FlushInterval: time.Millisecond})
	r.big = r.planted(b, int64(amount(bigClaims)))
	return r
}

// planted makes a campaign with claims in MySQL, all of one unit
// and with keys, by SQL alone.
func (r *resident) planted(b *testing.B, claims int64) string {
	b.Helper()
	id := fmt.Sprintf("planted-%d", claims)
	_, _, err := campaigns.New(r.store.gorm, r.scripts, slog.New(slog.DiscardHandler)).Create(b.Context(), models.Campaign{
		ID: id, Kind: models.KindCoupon, Total: 2 * claims, PerUser: 3, PerUserPerDay: 2, TimeZone: "UTC",
	})
	require.NoError(b, err)
	exec := func(query string, args ...any) {
		_, err := r.store.sql.ExecContext(longAfter(b), query, args...)
		require.NoError(b, err)
	}
	exec("CREATE TABLE IF NOT EXISTS planted (n BIGINT NOT NULL PRIMARY KEY)")
	exec("INSERT IGNORE INTO planted VALUES (1)")
	for have := int64(1); have < claims; have *= 2 {
		exec("INSERT IGNORE INTO planted SELECT n + ? FROM planted WHERE n + ? <= ?", have, have, claims)
	}
	// Ids like the API's, UUIDv7, twenty per millisecond. A key's digest is
	// 16 bytes in base64url: 22 characters, the last with only two bits.
	exec("INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, key_digest, epoch, claimed_at, synced_at)"+
		" SELECT CONCAT(SUBSTR(ms, 1, 8), '-', SUBSTR(ms, 9, 4), '-7', SUBSTR(noise, 1, 3), '-8', SUBSTR(noise, 4, 3), '-', SUBSTR(noise, 7, 12)),"+
		" ?, 0, n, CONCAT('user-', n), 1, 'claimed', CONCAT(SUBSTR(MD5(n), 1, 21), 'A'), 1, NOW(3), NOW(3) FROM"+
		" (SELECT n, LOWER(LPAD(HEX(1764000000000 + n DIV 20), 12, '0')) AS ms, MD5(CONCAT(?, n)) AS noise FROM planted WHERE n <= ?) p",
		id, id, claims)
	exec("UPDATE lots SET epoch = 1, load_attempts = 1, residency = 'evicted', synced_seq = ?, sold = ?, claimed = ? WHERE id = ?",
		claims, claims, claims, id)
	return id
}

// apply applies the campaign's stream to MySQL: a load relies on that.
func (r *resident) apply(b *testing.B) {
	b.Helper()
	p := lua.PartitionOf(r.big, residentPartitions)
	syncertest.ApplyOne(b, r.rdb, r.writer, p)
	require.NoError(b, offset.NewStreams(r.store.gorm, r.scripts).AwaitPartitions(longAfter(b), []int{p}))
}

func (r *resident) load(b *testing.B) time.Duration {
	b.Helper()
	started := time.Now()
	_, err := r.loader.Load(longAfter(b), r.big)
	took := time.Since(started)
	require.NoError(b, err)
	require.Equal(b, int64(amount(bigClaims)), r.taken(b, lua.Meta{ID: r.big}))
	r.apply(b)
	return took
}

// evict evicts the loaded campaign, and waits until a Redis
// thread has freed its memory.
func (r *resident) evict(b *testing.B) {
	b.Helper()
	require.Eventually(b, func() bool {
		n, err := r.evictor.Evict(b.Context())
		return err == nil && n == 1
	}, time.Minute, time.Millisecond) // which it must be idle for
	r.apply(b)
	require.Eventually(b, func() bool {
		info, err := r.rdb.InfoMap(b.Context(), "memory").Result()
		return err == nil && info["Memory"]["lazyfree_pending_objects"] == "0"
	}, time.Minute, 10*time.Millisecond)
}

// rebuild loads the campaign and evicts it.
func (s *sheet) rebuild(b *testing.B, r *resident, name string) {
	before := timesOf(b, r.broker, r.store)
	s.add(name, "s", r.load(b).Seconds())
	used := timesOf(b, r.broker, r.store).since(before)
	claims := int64(amount(bigClaims))
	s.add(name+": CPU of the loader", "µs/claim", perClaim(used.here, claims))
	s.add(name+": CPU of Redis", "µs/claim", perClaim(used.redis, claims))
	s.add(name+": CPU of the SQL server", "µs/claim", perClaim(used.sql, claims))
	r.evict(b)
}

// others claims from another campaign, in another partition: alone, during
// the big one's rebuild, and alone again. MySQL gets none of its claims.
func (s *sheet) others(b *testing.B, r *resident, alone, beside string) {
	m := r.campaign(b, plenty)
	for m.Partition == lua.PartitionOf(r.big, residentPartitions) {
		m = r.campaign(b, plenty)
	}
	before := r.claimFor(b, m, span(3*time.Second))
	ctx, cancel := context.WithCancel(b.Context())
	rate := make(chan float64, 1)
	go func() { rate <- r.claimUntil(ctx, b, m) }()
	s.add(beside+": the rebuild took", "s", r.load(b).Seconds())
	cancel()
	s.add(beside, "claims/s", <-rate)
	r.evict(b)
	s.add(alone, "claims/s", (before+r.claimFor(b, m, span(3*time.Second)))/2)
	r.forget(b, m)
}

func (r *resident) claimFor(b *testing.B, m lua.Meta, d time.Duration) float64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	return r.claimUntil(ctx, b, m)
}

// claimUntil claims until ctx ends, and returns claims per second.
func (r *resident) claimUntil(ctx context.Context, b *testing.B, m lua.Meta) float64 {
	reqs, prefix := make([]lua.ClaimRequest, othersPerCall), fmt.Sprintf("user-%d-", residentUsers.Add(1))
	started, n := time.Now(), int64(0)
	for ctx.Err() == nil {
		replies, _, err := r.scripts.Claim(context.WithoutCancel(ctx), m, requests(reqs, prefix, n, true))
		if err == nil {
			err = allTaken(replies)
		}
		if err != nil {
			b.Error(err)
			return 0
		}
		n += othersPerCall
	}
	return float64(n) / time.Since(started).Seconds()
}

var residentUsers atomic.Int64
