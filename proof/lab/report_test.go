package lab_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/proof/lab"
)

func resultOf(name string, rounds ...lab.Round) lab.Result {
	entry, _ := lab.StrategyNamed(name)
	return lab.ResultOf(entry, rounds)
}

func full() lab.Report {
	w := lab.DefaultWorkload()
	w.Users = 1_600
	w.Units = 1_300
	r := lab.Report{
		At: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC), Machine: []string{"2 cores", "go1.26"},
		Servers: []string{"Redis 7.0.15", "MariaDB 10.11"}, Workload: w,
		Results: []lab.Result{
			resultOf("read-then-write", lab.Round{
				ClaimsPerSecond: 20_715, RedisMicros: 29.94, Failed: 2, Failure: "boom", Oversold: 663, OverLimitUsers: 363, SellOutRate: 8_057,
			}.WithLock("0")),
			resultOf("lock-per-coupon", lab.Round{ClaimsPerSecond: 100, Busy: 1_234, Statements: 1, Cut: true}.WithLock("1, for 30 s")),
			resultOf("lua-update", lab.Round{ClaimsPerSecond: 1_000, Undersold: 5}.WithLock("0")),
			resultOf("dibs-http", lab.Round{ClaimsPerSecond: 9_410, SettledMs: 187.4, Statements: 0.01, RedisMicros: 29.5}.WithLock("0")),
		},
	}
	r.Compare()
	return r
}

const fullMarkdown = `2026-11-22; 2 cores, go1.26, Redis 7.0.15, MariaDB 10.11.
200 connections in 2 processes; 2s of measuring in each of 3 rounds; sell-out: 1,300 units, 1,600 users of 1 each.

- Dibs over HTTP / one lock a coupon: Redis counter, MySQL row: 94.1, target ≥ 50.0: met
- Dibs over HTTP / Lua, then one UPDATE a claim: 9.41, target ≥ 10.0: missed
- read, then write: 2 claims failed, the first with: boom
- one lock a coupon: Redis counter, MySQL row: 1,234 claims gave up waiting
- one lock a coupon: Redis counter, MySQL row: a sell-out was ended after 1m0s
- Dibs, over HTTP: MySQL had every claim 187 ms after the last answer, at worst

| strategy | claims/s | Dibs × | p50 ms | p95 ms | p99 ms | sell-out/s | oversold | undersold | over limit | lock left | SQL/claim | Redis µs/claim |
| --- | ---:| ---:| ---:| ---:| ---:| ---:| ---:| ---:| ---:| ---:| ---:| ---:|
| read, then write – wrong | 20,715 | 0.45 | 0.00 | 0.00 | 0.00 | 8,057 | 663 | 0 | 363 | 0 | 0.00 | 29.9 |
| one lock a coupon: Redis counter, MySQL row | 100 | 94.1 | 0.00 | 0.00 | 0.00 | 0 | 0 | 0 | 0 | 1, for 30 s | 1.00 | 0.00 |
| Lua, then one UPDATE a claim – wrong | 1,000 | 9.41 | 0.00 | 0.00 | 0.00 | 0 | 0 | 5 | 0 | 0 | 0.00 | 0.00 |
| Dibs, over HTTP | 9,410 | 1.00 | 0.00 | 0.00 | 0.00 | 0 | 0 | 0 | 0 | 0 | 0.01 | 29.5 |`

func TestTheReportHasEveryFigureAndEveryNote(t *testing.T) {
	t.Parallel()
	r := full()
	text, err := json.Marshal(r)
	require.NoError(t, err)
	var read lab.Report
	require.NoError(t, json.Unmarshal(text, &read), "what --json gives has all of it")
	require.Equal(t, fullMarkdown, read.Markdown())
	table := r.Table()
	for _, words := range []string{"20,715", "94.1", "1, for 30 s", "  read, then write: 2 claims failed, the first with: boom\n"} {
		require.Contains(t, table, words)
	}
	require.NotContains(t, table, "\n- ", "which is for documents")
	r.Results = r.Results[:1]
	r.Results[0].DibsRatio = 0
	require.NotContains(t, r.Markdown(), "Dibs over HTTP", "which did not run")
}

func TestFiguresOfAStrategyAreMediansAndWorstRounds(t *testing.T) {
	t.Parallel()
	even := []lab.Round{{ClaimsPerSecond: 4}, {ClaimsPerSecond: 1}, {ClaimsPerSecond: 3}, {ClaimsPerSecond: 2}}
	res := resultOf("watch", even...)
	require.InDelta(t, 2.5, res.ClaimsPerSecond, 1e-9)
	require.Equal(t, even, res.Rounds, "in their order")
	require.Zero(t, resultOf("watch").ClaimsPerSecond)
	worst := resultOf("watch",
		lab.Round{SettledMs: 5, Statements: 1, RedisMicros: 10, Oversold: 3, Undersold: 1, SellOutRate: 7, Busy: 1}.WithLock("1, for ever"),
		lab.Round{SettledMs: 9, Statements: 5, RedisMicros: 30, Oversold: 1, Undersold: 4, SellOutRate: 9, OverLimitUsers: 2, Busy: 2},
		lab.Round{SettledMs: 7, Statements: 2, RedisMicros: 20, SellOutRate: 8, OverLimitUsers: 1, Failure: "boom", Failed: 1},
	)
	require.Equal(t, []int64{3, 4, 2}, []int64{worst.Oversold, worst.Undersold, worst.OverLimitUsers})
	require.Equal(t, []float64{9, 2, 20, 8}, []float64{worst.SettledMs, worst.Statements, worst.RedisMicros, worst.SellOutRate})
	require.Equal(t, []int64{3, 1}, []int64{worst.Busy, worst.Failed})
	require.Equal(t, []string{"watch", "boom", "1, for ever"}, []string{worst.Name, worst.Failure, worst.Lock})
}

func TestARatioIsOfRoundsThatBothHave(t *testing.T) {
	t.Parallel()
	rates := func(name string, rates ...float64) lab.Result {
		var rounds []lab.Round
		for _, rate := range rates {
			rounds = append(rounds, lab.Round{ClaimsPerSecond: rate})
		}
		return resultOf(name, rounds...)
	}
	r := lab.Report{Results: []lab.Result{rates("for-update", 10, 0), rates("lua-update"), rates("dibs-http", 100, 400, 900)}}
	r.Compare()
	require.InDelta(t, 10, r.Results[0].DibsRatio, 1e-9, "a round without a claim is none to compare with")
	require.Zero(t, r.Results[1].DibsRatio)
	require.InDelta(t, 1, r.Results[2].DibsRatio, 1e-9)
	require.Contains(t, r.Markdown(), "FOR UPDATE: 10.0, target ≥ 10.0: met", "just enough is enough")
	require.Equal(t, 1, strings.Count(r.Markdown(), "target"), "of those that ran")
}
