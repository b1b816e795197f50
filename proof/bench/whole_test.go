package bench_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// whole is the program as operators run it: one process for the
// API, one for the consumer, real servers.
type whole struct {
	broker        *broker
	store         *store
	program       string
	settings      []string // of every role
	api, consumer *child
	noop          *child
	span          string // of a load
}

// newWhole builds the program and starts its servers.
func newWhole(b *testing.B, settings ...string) *whole {
	b.Helper()
	w := &whole{broker: newBroker(b), store: stores(b)[0], program: buildDibs(b), span: wrkSpan()}
	w.settings = slices.Concat(settings, []string{"DIBS_REDIS_URL=" + w.broker.server.URL(), "DIBS_MYSQL_DSN=" + w.store.dsn, "DIBS_HTTP_ADDR=127.0.0.1:0"})
	return w
}

func (w *whole) start(b *testing.B, role string, settings ...string) *child {
	b.Helper()
	return startDibs(b, w.program, role, append(settings, w.settings...)...)
}

// startBoth starts an API and a consumer.
func (w *whole) startBoth(b *testing.B) {
	b.Helper()
	w.api, w.consumer = w.start(b, "api"), w.start(b, "consumer")
}

// facts are the servers' versions.
func (w *whole) facts(b *testing.B) []string {
	b.Helper()
	return []string{w.broker.version(b), w.store.version(b)}
}

// benchWhole loads the API while the consumer writes the claims
// to MySQL, all on this machine.
func benchWhole(b *testing.B, s *sheet) {
	w := newWhole(b)
	s.Facts = append(w.facts(b), wrkVersion(b))
	w.api = w.start(b, "api")
	// before the consumer reads a campaign that MySQL lacks
	header, body := (&counters{broker: w.broker, api: w.api}).sample(b)
	w.consumer = w.start(b, "consumer")
	w.noop = startChild(b, childNoop, childSettings{Header: header, Body: body})
	var sides, compare []func()
	for _, connections := range []int{50, 200} {
		at := func(what string) string { return fmt.Sprintf("%s, %d connections", what, connections) }
		name, noop, sold := at("claims"), at("no-op handler"), at("sold-out")
		sides = append(sides,
			func() {
				s.load(b, noop, w.noop, func() wrkResult { return wrk(b, w.noop.addr, "any", connections, true) })
			},
			func() { w.accepted(b, s, name, connections) },
			func() { w.refused(b, s, sold, connections, false) },
			func() { w.refused(b, s, sold+", with keys", connections, true) })
		compare = append(compare, func() {
			s.ratio(b, name+" / no-op", name, noop, 0.33)
			s.ratio(b, sold+" / no-op", sold, noop, 0.8)
			s.ratio(b, sold+", with keys / no-op", sold+", with keys", noop, 0)
		})
	}
	s.takeTurns(sides)
	for _, ratios := range compare {
		ratios()
	}
	s.note("`dibs api` and `dibs consumer` as built for production, accepted claims with idempotency keys; Redis, SQL server and wrk share the cores with them.")
	s.note("Booked: claims over the time from the first request until the last claim is in MySQL.")
}

// refused loads the API with claims of a sold-out campaign.
func (w *whole) refused(b *testing.B, s *sheet, name string, connections int, keyed bool) {
	id := w.create(b)
	w.call(b, http.MethodPatch, "/v1/campaigns/"+id, `{"total":0}`, http.StatusOK, &struct{}{})
	s.load(b, name, w.api, func() wrkResult { return wrk(b, w.api.addr, id, connections, keyed) })
}

// accepted loads the API and waits until MySQL has all claims.
func (w *whole) accepted(b *testing.B, s *sheet, name string, connections int) {
	w.acceptedOf(b, s, w.create(b), name, connections)
}

func (w *whole) acceptedOf(b *testing.B, s *sheet, id, name string, connections int) {
	b.Helper()
	api, consumer, server := w.api.cpu(b), w.consumer.cpu(b), cpuOf(b, w.store.pid)
	started := time.Now()
	r := wrkFor(b, w.span, w.api.addr, id, connections, true)
	require.Zero(b, r.Refused)
	loaded := time.Now()
	taken := w.untilDrained(b, id)
	s.add(name, "claims/s", r.rate())
	s.add(name+": p99", "ms", float64(r.P99Us)/1000)
	s.add(name+": booked", "claims/s", float64(taken)/time.Since(started).Seconds())
	s.add(name+": drained after the load", "s", time.Since(loaded).Seconds())
	s.add(name+": CPU of the API", "µs/claim", perClaim(w.api.cpu(b)-api, taken))
	s.add(name+": CPU of the consumer", "µs/claim", perClaim(w.consumer.cpu(b)-consumer, taken))
	s.add(name+": CPU of the SQL server", "µs/claim", perClaim(cpuOf(b, w.store.pid)-server, taken))
	s.add(name+": flush p99", "ms", w.store.flushP99(b, id))
	w.store.requireBooked(b, lua.Meta{ID: id}, taken)
}

// flushP99 is the 99th percentile of a campaign's flush times.
func (s *store) flushP99(b *testing.B, id string) (ms float64) {
	b.Helper()
	require.NoError(b, s.sql.QueryRowContext(b.Context(), "SELECT took_ms FROM (SELECT took_ms, CUME_DIST() OVER (ORDER BY took_ms) AS place"+
		" FROM stock_flushes WHERE campaign_id = ?) f WHERE place >= 0.99 ORDER BY place LIMIT 1", id).Scan(&ms))
	return ms
}

func (w *whole) create(b *testing.B) string {
	b.Helper()
	id := fmt.Sprintf("bench-%d", w.broker.made.Add(1))
	body := fmt.Sprintf(`{"id":%q,"kind":"coupon","total":%d,"per_user":3,"per_user_per_day":2}`, id, plenty)
	var campaign struct {
		ID string `json:"id"`
	}
	w.call(b, http.MethodPost, "/v1/campaigns", body, http.StatusCreated, &campaign)
	require.Equal(b, id, campaign.ID)
	return id
}

// untilDrained waits until every claim is in MySQL, and returns their number.
// Some are still accepted after wrk has disconnected.
func (w *whole) untilDrained(b *testing.B, id string) int64 {
	b.Helper()
	var last, now models.Stock
	require.Eventually(b, func() bool {
		last = now
		w.call(b, http.MethodGet, "/v1/campaigns/"+id+"/stock", "", http.StatusOK, &now)
		return now.Backlog == 0 && now.Claimed == last.Claimed
	}, 2*time.Minute, 20*time.Millisecond)
	return now.Claimed
}

func (w *whole) call(b *testing.B, method, path, body string, status int, into any) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, "http://"+w.api.addr+path, strings.NewReader(body))
	require.NoError(b, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(b, err)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(b, status, resp.StatusCode, path)
	require.NoError(b, json.NewDecoder(resp.Body).Decode(into))
}
