package shards_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/shards"
	"dibs/syncer/writer"
)

// hall is where sellers of one campaign work, and are struck.
type hall struct {
	*syncertest.Stack

	sql     *testenv.MySQLServer
	dsn     string
	random  *rand.Rand
	packets bool // are sold, in place of coupons

	id    string
	total int64
	told  map[string]told // of those that were answered to sellers of this process, by claim

	struck map[string]int // by what and where
}

func newHall(t *testing.T, seed uint64) *hall {
	t.Helper()
	sql := testenv.SQLServer(t)
	dsn := sql.DSN("dibs")
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: dsn})
	server := testenv.Redis(t, "appendonly yes", "appendfsync always", "aof-load-truncated no")
	client, err := lua.Connect(server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	rdb := client.(*redis.Client)
	scripts, err := scriptsOf(rdb)
	require.NoError(t, err)
	h := &hall{
		Stack:  &syncertest.Stack{T: t, Server: server, Redis: rdb, DB: db, Scripts: scripts},
		sql:    sql,
		dsn:    dsn,
		random: rand.New(rand.NewPCG(seed, 0)),
		struck: map[string]int{},
	}
	h.Writer = syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
	return h
}

// open makes the next campaign.
func (h *hall) open() {
	h.T.Helper()
	h.total, h.told = 100+h.random.Int64N(100), map[string]told{}
	c := syncertest.CampaignOf(testenv.UniqueID(h.T, "c"), h.total)
	c.Shards, c.PerUser = shardCount, perUser
	if h.packets {
		c.Kind, c.Currency, c.Total = models.KindPacket, "CNY", 0
	}
	_, _, err := syncertest.NewCampaigns(h.T, h.DB, h.Scripts).Create(h.T.Context(), c)
	require.NoError(h.T, err)
	h.id = c.ID
	if h.packets { // some are released before others
		early := h.total / 3
		h.AddPackets(h.id, syncertest.ListOf("p", int(early)))
		h.AddPackets(h.id, syncertest.ReleasedAt(syncertest.ListOf("q", int(h.total-early)), new(time.Now().Add(-time.Hour))))
	}
}

// plan draws a seller.
func (h *hall) plan() sellerPlan {
	return sellerPlan{
		DSN: h.dsn, Redis: h.Server.URL(), CampaignID: h.id, Seed: h.random.Uint64(), Home: 1 + h.random.IntN(shardCount), Users: 40,
		Packets: h.packets,
	}
}

// What is struck.
const (
	strikeProcess = "process"
	strikeRedis   = "redis"
	strikeSQL     = "mysql"
)

// strike has two sellers and a syncer work on the campaign until one comes to a step, where what is struck dies, and starts again. It
// returns whether all units are sold.
func (h *hall) strike(what, step string) (soldOut bool) {
	t := h.T
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plan := h.plan()
	plan.Step, plan.Visit = step, 1+h.random.Int64N(2)
	var others sync.WaitGroup
	besides, stop := context.WithCancel(ctx)
	defer others.Wait()
	defer stop()
	checker := shards.New(h.DB, h.Scripts, h.Hydrator(), syncertest.Quiet(), nil)
	others.Go(func() {
		for besides.Err() == nil {
			_, _ = checker.Check(besides)               // a server may be away
			_ = sleep.For(besides, 10*time.Millisecond) // besides is looked at above
		}
	})
	beside := h.seller(h.plan(), nil)
	others.Go(func() { beside.sell(besides) })
	defer func() {
		stop()
		others.Wait()
		h.hear(beside)
	}()
	if what == strikeProcess {
		_, killed := syncertest.RunHelper(t, plan)
		if killed {
			h.struck[what+" "+step]++
		}
		return !killed
	}
	kill, start := h.Server.Kill, func() { h.Server.StartRepaired() } // a write that a kill cut off was not answered
	if what == strikeSQL {
		kill, start = h.sql.Kill, h.sql.Start
	}
	isStruck := make(chan struct{})
	s := h.seller(plan, func() { kill(); close(isStruck) })
	var one sync.WaitGroup
	one.Go(func() { soldOut = s.sell(ctx); h.hear(s); stop() })
	select {
	case <-isStruck:
		start()
		h.struck[what+" "+step]++
	case <-besides.Done():
	}
	one.Wait()
	return soldOut
}

func (h *hall) seller(p sellerPlan, strike func()) *seller {
	h.T.Helper()
	s, err := newSeller(p, h.DB, h.Redis, strike)
	require.NoError(h.T, err)
	return s
}

var hearing sync.Mutex

// hear notes what a seller was answered.
func (h *hall) hear(s *seller) {
	hearing.Lock()
	defer hearing.Unlock()
	for _, one := range s.told {
		h.told[one.id] = one
	}
}

// wrong says what of the campaign is not as it must be once it is sold out; nothing is in use then.
func (h *hall) wrong() (all []string) {
	t := h.T
	t.Helper()
	require.Eventually(t, func() bool { return h.Redis.Ping(t.Context()).Err() == nil }, time.Minute, 10*time.Millisecond)
	if _, err := shards.New(h.DB, h.Scripts, h.Hydrator(), syncertest.Quiet(), nil).Check(t.Context()); err != nil {
		all = append(all, err.Error())
	}
	h.Sync()
	var rows []struct {
		ID, UserID, PacketID string
		Quantity             int64
	}
	require.NoError(t, h.DB.Raw("SELECT id, user_id, quantity, COALESCE(packet_id, '') AS packet_id FROM claims WHERE campaign_id = ?", h.id).
		Scan(&rows).Error)
	units, byID, byUser := int64(0), map[string]told{}, map[string]int64{}
	for _, r := range rows {
		units, byID[r.ID] = units+r.Quantity, told{r.ID, r.Quantity, r.PacketID}
		if byUser[r.UserID] += r.Quantity; byUser[r.UserID] > perUser {
			all = append(all, fmt.Sprintf("%s has %d units", r.UserID, byUser[r.UserID]))
		}
	}
	if units != h.total {
		all = append(all, fmt.Sprintf("%d of %d units are sold", units, h.total))
	}
	for id, one := range h.told {
		if byID[id] != one {
			all = append(all, fmt.Sprintf("claim %v was answered, %v is booked", one, byID[id]))
		}
	}
	if h.packets {
		all = append(all, h.wrongPackets(byID)...)
	}
	found, err := reconcile.New(h.DB, h.Scripts, h.Hydrator(), syncertest.Quiet(), nil).Compare(t.Context(), h.id, reconcile.DepthUsers)
	require.NoError(t, err)
	return append(all, found.Differences...)
}

// wrongPackets says what is wrong with the packets of a campaign that is sold out, by its claims.
func (h *hall) wrongPackets(claims map[string]told) (all []string) {
	h.T.Helper()
	for _, parked := range syncertest.ParkedIDs(h.T, h.DB) {
		all = append(all, "parked: "+parked)
	}
	for _, p := range syncertest.PacketsOf(h.T, h.DB, h.id) {
		switch {
		case p.ClaimID == nil:
			all = append(all, "no one has packet "+p.ID)
		case claims[*p.ClaimID].packet != p.ID:
			all = append(all, fmt.Sprintf("packet %s is of claim %s, which has %q", p.ID, *p.ClaimID, claims[*p.ClaimID].packet))
		}
	}
	return all
}

// sellOn strikes at these points, in one campaign after another, and returns what is wrong with the first that is not right.
func (h *hall) sellOn(points []point) (wrong []string) {
	h.T.Helper()
	h.open()
	for _, p := range points {
		if soldOut := h.strike(p.what, p.step); !soldOut {
			continue
		}
		if wrong = h.wrong(); len(wrong) > 0 {
			return wrong
		}
		h.open()
	}
	if !h.strike(strikeSQL, "never") {
		return []string{"not sold out in time"}
	}
	return h.wrong()
}

// point is where something dies.
type point struct{ what, step string }

// TestUnitsOutliveWhoeverDies: movers, Redis and MySQL are killed between any two steps of a grant and of a recall, while another process
// sells, too, and a third one looks for open moves. In the end exactly the campaign's units are sold, no user has too many, each claim
// that was answered is booked, and the books agree.
func TestUnitsOutliveWhoeverDies(t *testing.T) {
	t.Parallel()
	seed, points, what := uint64(1), []point(nil), []string{strikeProcess, strikeRedis, strikeSQL}
	for _, step := range anyStep {
		for _, one := range what {
			points = append(points, point{one, step})
		}
	}
	if testenv.Soak() {
		seed, points = rand.Uint64(), nil
		random := rand.New(rand.NewPCG(seed, 9))
		for range 500 {
			points = append(points, point{what[random.IntN(len(what))], anyStep[random.IntN(len(anyStep))]})
		}
	}
	t.Logf("seed %d", seed)
	h := newHall(t, seed)
	require.Empty(t, h.sellOn(points))
	for _, where := range slices.Sorted(maps.Keys(h.struck)) {
		t.Logf("%s: %d", where, h.struck[where])
	}
	require.NotEmpty(t, h.struck)
}

// TestPacketsOutliveWhoeverDies: as with units; each packet is taken once, by the user who was told so.
func TestPacketsOutliveWhoeverDies(t *testing.T) {
	t.Parallel()
	seed, what := uint64(2), []string{strikeProcess, strikeRedis, strikeSQL}
	points := []point(nil)
	for _, step := range anyStep {
		for _, one := range what {
			points = append(points, point{one, step})
		}
	}
	if testenv.Soak() {
		seed, points = rand.Uint64(), nil
		random, steps := rand.New(rand.NewPCG(seed, 9)), anyStep
		for range 500 {
			points = append(points, point{what[random.IntN(len(what))], steps[random.IntN(len(steps))]})
		}
	}
	t.Logf("seed %d", seed)
	h := newHall(t, seed)
	h.packets = true
	require.Empty(t, h.sellOn(points))
	for _, where := range slices.Sorted(maps.Keys(h.struck)) {
		t.Logf("%s: %d", where, h.struck[where])
	}
	require.NotEmpty(t, h.struck)
}
