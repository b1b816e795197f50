package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/models"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

const (
	manyCampaigns = 10_000
	manyReconcile = 5_000 // compared with Redis
	manyInBatch   = 500   // not in Redis, in one request
	manyCold      = 3_000 // get their first claim over 64 connections, one per request
	manyIdleFor   = 30 * time.Second
)

// many is a whole Dibs with idle campaigns.
type many struct {
	*whole
	ids []string
}

// benchMany makes campaigns, half of them with holds, makes one
// claim in each, and then leaves them idle.
func benchMany(b *testing.B, s *sheet) {
	s.rounds = 1
	m := &many{whole: newWhole(b, "DIBS_IDLE_EVICT=10h")}
	s.Facts = m.facts(b)
	m.createAll(b, amount(manyCampaigns))
	m.startBoth(b)
	left := s.coldBatch(b, m, m.ids)
	left = s.coldOneByOne(b, m, left)
	for len(left) > 0 {
		n := min(len(left), manyInBatch)
		m.untilClaimed(b, left[:n])
		left = left[n:]
	}
	syncer := m.start(b, "syncer")
	m.untilBooked(b)
	s.idle(b, m, syncer)
	s.reconcileMany(b, m, amount(manyReconcile))
	s.startMany(b, m)
	s.goal(b, "idle: together", atMost, 3)
	s.goal(b, "first claims of cold campaigns", atLeast, 1000)
	s.goal(b, "refused of a batch over as many cold campaigns", atMost, 0)
	s.goal(b, reconciled(amount(manyReconcile)), atMost, 5)
	for _, role := range manyRoles {
		s.goal(b, "start of "+role, atMost, 2)
	}
	s.note(fmt.Sprintf("%d campaigns, half of them with hold_for, each with one claim and in Redis; `dibs api`, `dibs consumer` and"+
		" `dibs syncer` as built for production. Idle: what each used of a core in %v, after all is in MySQL.", len(m.ids), manyIdleFor))
}

// createAll inserts campaigns into MySQL.
func (m *many) createAll(b *testing.B, n int) {
	b.Helper()
	rows := make([]models.Campaign, n)
	for i := range rows {
		rows[i] = models.Campaign{
			ID: fmt.Sprintf("many-%05d", i), Kind: models.KindCoupon, Status: models.StatusOpen, TimeZone: "UTC",
			Total: 100, PerUser: 1, Version: 1,
		}
		if i%2 == 0 {
			rows[i].HoldForMs = (24 * time.Hour).Milliseconds()
		}
		m.ids = append(m.ids, rows[i].ID)
	}
	syncertest.AddCampaigns(b, m.store.gorm, rows...)
}

// refused sends one claim for each campaign in one request, and
// returns the number refused.
func (m *many) refused(b *testing.B, ids []string) int {
	b.Helper()
	answer, err := postBatch(http.DefaultClient, m.api.addr, len(ids), func(i int) (campaign, user string) { return ids[i], "ada" })
	require.NoError(b, err)
	require.Len(b, answer.Results, len(ids))
	return answer.refused()
}

func (m *many) untilClaimed(b *testing.B, ids []string) {
	b.Helper()
	require.Eventually(b, func() bool { return m.refused(b, ids) == 0 }, time.Minute, 50*time.Millisecond)
}

// coldBatch sends batches over campaigns that are not in Redis.
func (s *sheet) coldBatch(b *testing.B, m *many, ids []string) (left []string) {
	n := min(manyInBatch, len(ids)/4)
	for range 3 {
		started := time.Now()
		s.add("refused of a batch over as many cold campaigns", "claims", float64(m.refused(b, ids[:n])))
		s.add("that batch", "s", time.Since(started).Seconds())
		m.untilClaimed(b, ids[:n])
		ids = ids[n:]
	}
	return ids
}

// coldOneByOne claims from campaigns that are not in Redis, one per request.
func (s *sheet) coldOneByOne(b *testing.B, m *many, ids []string) (left []string) {
	n := min(amount(manyCold), len(ids))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	var refused atomic.Int64
	api, redis, mysql := m.api.cpu(b), m.broker.usage(b).cpu, cpuOf(b, m.store.pid)
	started := time.Now()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(64)
	for _, id := range ids[:n] {
		group.Go(func() error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m.api.addr+"/v1/campaigns/"+id+"/claims",
				strings.NewReader(`{"user_id":"ada"}`))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			if resp.StatusCode != http.StatusCreated {
				refused.Add(1)
			}
			return resp.Body.Close()
		})
	}
	require.NoError(b, group.Wait())
	took := time.Since(started)
	s.add("first claims of cold campaigns", "claims/s", float64(n)/took.Seconds())
	s.add("first claims of cold campaigns: refused", "claims", float64(refused.Load()))
	s.add("first claims of cold campaigns: CPU of the API", "µs/claim", perClaim(m.api.cpu(b)-api, int64(n)))
	s.add("first claims of cold campaigns: CPU of Redis", "µs/claim", perClaim(m.broker.usage(b).cpu-redis, int64(n)))
	s.add("first claims of cold campaigns: CPU of the SQL server", "µs/claim", perClaim(cpuOf(b, m.store.pid)-mysql, int64(n)))
	return ids[n:]
}

// untilBooked waits until MySQL has a claim's row for each campaign.
func (m *many) untilBooked(b *testing.B) {
	b.Helper()
	require.Eventually(b, func() bool {
		var claimed int
		require.NoError(b, m.store.sql.QueryRowContext(b.Context(), "SELECT COUNT(*) FROM campaigns WHERE claimed > 0").Scan(&claimed))
		return claimed == len(m.ids)
	}, 2*time.Minute, 100*time.Millisecond)
}

// idle measures each idle process's share of a core.
func (s *sheet) idle(b *testing.B, m *many, syncer *child) {
	time.Sleep(5 * time.Second) // the last acks, and the first checks of a new leader
	used := func() [5]time.Duration {
		return [5]time.Duration{m.api.cpu(b), m.consumer.cpu(b), syncer.cpu(b), m.broker.usage(b).cpu, cpuOf(b, m.store.pid)}
	}
	before, started := used(), time.Now()
	statements, rows := m.status(b, "Questions"), m.status(b, "Handler_read%")
	time.Sleep(span(manyIdleFor))
	after, took := used(), time.Since(started)
	together := 0.0
	for i, name := range []string{"api", "consumer", "syncer", "Redis", "SQL server"} {
		share := 100 * float64(after[i]-before[i]) / float64(took)
		together += share
		s.add("idle: "+name, "% of a core", share)
	}
	s.add("idle: together", "% of a core", together)
	s.add("idle: statements", "a second", float64(m.status(b, "Questions")-statements)/took.Seconds())
	s.add("idle: rows read", "a second", float64(m.status(b, "Handler_read%")-rows)/took.Seconds())
}

func (m *many) status(b *testing.B, like string) (sum int64) {
	b.Helper()
	rows, err := m.store.sql.QueryContext(b.Context(), "SHOW GLOBAL STATUS LIKE '"+like+"'")
	require.NoError(b, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var n int64
		require.NoError(b, rows.Scan(&name, &n))
		sum += n
	}
	require.NoError(b, rows.Err())
	return sum
}

var manyRoles = []string{"api", "consumer", "syncer"}

func reconciled(n int) string { return fmt.Sprintf("dibs reconcile, for %d campaigns", n) }

// reconcileMany runs `dibs reconcile` over all campaigns, and
// adds the time for so many.
func (s *sheet) reconcileMany(b *testing.B, m *many, n int) {
	started := time.Now()
	out, err := m.dibs(b, "reconcile", "--json").Output()
	require.NoError(b, err)
	took := time.Since(started)
	lines := bytes.Count(out, []byte("\n"))
	require.Equal(b, len(m.ids), lines)
	s.add(reconciled(n), "s", took.Seconds()*float64(n)/float64(lines))
}

func (m *many) dibs(b *testing.B, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(b.Context()), m.program, args...)
	cmd.Env = append(cmd.Environ(), m.settings...)
	return cmd
}

// startMany measures each role's time until it is ready.
func (s *sheet) startMany(b *testing.B, m *many) {
	for _, role := range manyRoles {
		ln, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
		require.NoError(b, err)
		addr := ln.Addr().String()
		require.NoError(b, ln.Close())
		settings := append(slices.Clone(m.settings), "DIBS_METRICS_ADDR="+addr, "DIBS_NAME=another")
		if role == "api" {
			settings = append(settings, "DIBS_HTTP_ADDR="+addr)
		}
		started := time.Now()
		startDibs(b, m.program, role, settings...)
		require.Eventually(b, func() bool {
			resp, err := http.Get("http://" + addr + map[bool]string{true: "/readyz", false: "/healthz"}[role == "api"])
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		}, time.Minute, 10*time.Millisecond)
		s.add("start of "+role, "s", time.Since(started).Seconds())
	}
}
