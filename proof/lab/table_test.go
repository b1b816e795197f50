package lab_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/proof/lab"
)

func TestFiguresHaveThreeDigitsThatCount(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0.00", 0.004: "0.00", 0.005001: "0.01", 1: "1.00", 9.994: "9.99", 10: "10.0", 99.94: "99.9", 100: "100", 999.4: "999",
		1_000: "1,000", 36_985.4: "36,985", 1_234_567: "1,234,567", -1: "-1.00", -12.34: "-12.3", -1_234: "-1,234", -123: "-123",
	} {
		require.Equal(t, want, lab.Digits(v), v)
	}
	for v, want := range map[float64]string{0: "0", 12: "12", 999: "999", 1_000: "1,000", -999: "-999", -1_000_000: "-1,000,000"} {
		require.Equal(t, want, lab.Whole(v), v)
	}
}

func TestALockSaysHowLongItStays(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]lab.Lock{
		"0":              {},
		"0, wedged":      {Wedged: true},
		"1, for ever":    {Left: 1, ForEver: true, Wedged: true},
		"1, for 30 s":    {Left: 1, EndsMs: 29_001},
		"1, for 1 s":     {Left: 1, EndsMs: 1},
		"1, for 1000 s":  {Left: 1, EndsMs: 1_000_000},
		"1, for 0 s":     {Left: 1},
		"1, for  0 s is": {Left: 2, ForEver: true},
	} {
		if strings.HasSuffix(want, "is") {
			require.Equal(t, "1, for ever", l.String())
			continue
		}
		require.Equal(t, want, l.String())
	}
}

// full is a report in which every part has something to say.
func full() lab.Report {
	entry := func(name string) lab.Entry {
		r, _ := lab.StrategyNamed(name)
		return r
	}
	naive := []lab.Round{{
		ClaimsPerSecond: 20_715, RedisMicros: 29.94, Failed: 1, Failure: "boom",
		SellOut: lab.SellOut{Oversold: 663, OverLimitUsers: 363, ClaimsPerSecond: 8_057, Failed: 1, Failure: "later"},
	}}
	locked := []lab.Round{{ClaimsPerSecond: 100, Busy: 1_200, Statements: 1, SellOut: lab.SellOut{Busy: 34, Undersold: 5, Cut: true}}}
	ours := []lab.Round{{ClaimsPerSecond: 9_410, SettledMs: 187.4, Statements: 0.01, RedisMicros: 29.5}}
	r := lab.Report{
		At: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC), Machine: []string{"2 cores", "go1.26"}, Servers: []string{"Redis 7.0.15", "MariaDB 10.11"},
		Workload: lab.Workload{Users: 1_600, Units: 1_300}.WithDefaults(),
		Results: []lab.Result{
			lab.ResultOf(entry("read-then-write"), naive, lab.Lock{}),
			lab.ResultOf(entry("lock-per-coupon"), locked, lab.Lock{Left: 1, EndsMs: 30_000}),
			lab.ResultOf(entry("dibs-http"), ours, lab.Lock{}),
		},
	}
	r.Compare()
	return r
}

const (
	fullFacts = `2026-11-22; 2 cores, go1.26, Redis 7.0.15, MariaDB 10.11.
200 connections in 2 processes; 2s of measuring in each of 3 rounds; sell-out: 1,300 units, 1,600 users of 1 each.
`
	fullCSV = `strategy,claims/s,Dibs ×,p50 ms,p95 ms,p99 ms,sell-out/s,oversold,undersold,over limit,lock left,SQL/claim,Redis µs/claim
"read, then write","20,715",0.45,0.00,0.00,0.00,"8,057",663,0,363,0,0.00,29.9
"one lock a coupon: Redis counter, MySQL row",100,94.1,0.00,0.00,0.00,0,0,5,0,"1, for 30 s",1.00,0.00
"Dibs, over HTTP","9,410",1.00,0.00,0.00,0.00,0,0,0,0,0,0.01,29.5
`
	fullNotes = `
- Dibs over HTTP / one lock a coupon: Redis counter, MySQL row: 94.1, target ≥ 50.0: met
- read, then write: 2 claims failed, the first with: boom
- one lock a coupon: Redis counter, MySQL row: 1,234 claims gave up waiting
- one lock a coupon: Redis counter, MySQL row: a sell-out was ended after 1m0s
- Dibs, over HTTP: MySQL had every claim 187 ms after the last answer, at worst
`
)

func TestTheDocumentHasEveryFigureAndEveryNote(t *testing.T) {
	t.Parallel()
	r := full()
	require.Equal(t, fullCSV, r.CSV())
	docs := t.TempDir()
	file := filepath.Join(docs, "lab.md")
	require.NoError(t, os.WriteFile(file, []byte("<!-- figures: x -->\n<!-- end: x -->"), 0o600))
	require.NoError(t, r.Publish(docs, "x"))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), fullFacts+fullNotes)
	table := r.Table()
	for _, words := range []string{"20,715", "94.1", "1, for 30 s", "  read, then write: 2 claims failed, the first with: boom\n"} {
		require.Contains(t, table, words)
	}
	require.NotContains(t, table, "\n- ", "which is for documents")
	first, _, _ := strings.Cut(table, "\n")
	require.Equal(t, strings.SplitN(fullFacts, "\n", 2)[0], first)
}

// TestTheJSONOfAReportKeepsItsNames: others plot it.
func TestTheJSONOfAReportKeepsItsNames(t *testing.T) {
	t.Parallel()
	r := full()
	text, err := json.Marshal(r)
	require.NoError(t, err)
	var all struct {
		Results []map[string]any `json:"rungs"`
		Lines   []map[string]any
		lab.Workload
	}
	require.NoError(t, json.Unmarshal(text, &all))
	for _, name := range []string{
		"name", "title", "flaw", "claims_per_second", "dibs_ratio", "p50_ms", "p95_ms", "p99_ms", "oversold", "undersold", "over_limit_users",
		"lock", "mysql_statements_a_claim", "redis_cpu_us_a_claim", "sell_out_claims_per_second", "settled_ms", "rounds",
	} {
		require.Contains(t, all.Results[1], name)
	}
	require.Equal(t, map[string]any{"left": 1.0, "for_ever": false, "ends_ms": 30_000.0, "wedged": false}, all.Results[1]["lock"])
	require.Equal(t, map[string]any{
		"what": "Dibs over HTTP / one lock a coupon: Redis counter, MySQL row", "value": 94.1, "target": 50.0, "met": true,
	}, all.Lines[0])
	var back lab.Report
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, r.Workload, back.Workload)
	require.Equal(t, r.CSV(), back.CSV(), "the document can be made from it")
}

func TestFiguresOfAStrategyAreMediansAndWorstRounds(t *testing.T) {
	t.Parallel()
	entry, _ := lab.StrategyNamed("watch")
	even := []lab.Round{{ClaimsPerSecond: 4}, {ClaimsPerSecond: 1}, {ClaimsPerSecond: 3}, {ClaimsPerSecond: 2}}
	require.InDelta(t, 2.5, lab.ResultOf(entry, even, lab.Lock{}).ClaimsPerSecond, 1e-9)
	require.Equal(t, []lab.Round{{ClaimsPerSecond: 4}, {ClaimsPerSecond: 1}, {ClaimsPerSecond: 3}, {ClaimsPerSecond: 2}}, even, "in their order")
	none := lab.ResultOf(entry, nil, lab.Lock{})
	require.Zero(t, none.ClaimsPerSecond)
	worst := lab.ResultOf(entry, []lab.Round{
		{SettledMs: 5, Statements: 1, RedisMicros: 10, SellOut: lab.SellOut{Oversold: 3, Undersold: 1, ClaimsPerSecond: 7}},
		{SettledMs: 9, Statements: 5, RedisMicros: 30, SellOut: lab.SellOut{Oversold: 1, Undersold: 4, ClaimsPerSecond: 9, OverLimitUsers: 2}},
		{SettledMs: 7, Statements: 2, RedisMicros: 20, SellOut: lab.SellOut{ClaimsPerSecond: 8, OverLimitUsers: 1}},
	}, lab.Lock{Left: 1})
	require.Equal(t, []int64{3, 4, 2}, []int64{worst.Oversold, worst.Undersold, worst.OverLimitUsers})
	require.Equal(t, []float64{9, 2, 20, 8}, []float64{worst.SettledMs, worst.Statements, worst.RedisMicros, worst.SellOutRate})
	require.Equal(t, lab.Lock{Left: 1}, worst.Lock)
	require.Equal(t, []string{"watch", entry.Title, entry.Flaw}, []string{worst.Name, worst.Title, worst.Flaw})
}

func TestARatioIsOfRoundsThatBothHave(t *testing.T) {
	t.Parallel()
	result := func(name string, rates ...float64) lab.Result {
		entry, _ := lab.StrategyNamed(name)
		return lab.ResultOf(entry, rounds(rates...), lab.Lock{})
	}
	r := lab.Report{Results: []lab.Result{result("for-update", 10, 0), result("lua-update"), result("dibs-http", 100, 400, 900)}}
	r.Compare()
	require.InDelta(t, 10, r.Results[0].DibsRatio, 1e-9, "a round without a claim is none to compare with")
	require.Zero(t, r.Results[1].DibsRatio)
	require.InDelta(t, 1, r.Results[2].DibsRatio, 1e-9)
	require.Equal(t, []string{"Dibs over HTTP / Lua, then one UPDATE a claim", "Dibs over HTTP / MySQL SELECT … FOR UPDATE"},
		[]string{r.Lines[0].What, r.Lines[1].What}, "the lines of those that ran")
	require.False(t, r.Lines[0].Met)
	require.True(t, r.Lines[1].Met, "just enough is enough")
	require.False(t, math.IsNaN(r.Lines[0].Value))
}

func TestPublishKnowsThePartByItsServer(t *testing.T) {
	t.Parallel()
	const page = "a\n<!-- figures: mysql -->\nold\n<!-- end: mysql -->\nb\n<!-- figures: mariadb -->\nold\n<!-- end: mariadb -->\nc\n"
	for part, servers := range map[string][]string{"mysql": {"Redis 7", "MySQL 9.7.4"}, "mariadb": {"MariaDB 10.11.19"}} {
		docs := t.TempDir()
		file := filepath.Join(docs, "lab.md")
		require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
		r := full()
		r.Servers = servers
		require.NoError(t, r.Publish(docs, ""))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), "\nold\n"), "the other part is left alone")
		_, after, _ := strings.Cut(string(text), "<!-- figures: "+part+" -->\n")
		require.True(t, strings.HasPrefix(after, "2026-11-22; "), after[:40])
		require.Equal(t, "a\n", string(text[:2]))
		require.Equal(t, "\nc\n", string(text[len(text)-3:]))
		first := string(text)
		require.NoError(t, r.Publish(docs, ""))
		text, err = os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, first, string(text), "the same again changes nothing")
	}
}

func TestPublishWritesNothingWhereItHasNoPlace(t *testing.T) {
	t.Parallel()
	r := full()
	require.ErrorIs(t, r.Publish(t.TempDir(), "x"), os.ErrNotExist)
	for name, page := range map[string]string{
		"no markers": "text\n", "no end": "<!-- figures: x -->\n", "no beginning": "<!-- end: x -->\n",
		"upside down": "<!-- end: x -->\n<!-- figures: x -->\n", "another part": "<!-- figures: y -->\n<!-- end: y -->\n",
	} {
		docs := t.TempDir()
		file := filepath.Join(docs, "lab.md")
		require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
		err := r.Publish(docs, "x")
		require.ErrorIs(t, err, lab.ErrMarkers, name)
		require.ErrorContains(t, err, file, name)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, page, string(text), name)
	}
}
