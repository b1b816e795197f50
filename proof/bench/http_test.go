package bench_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// callsInFlight is the number of concurrent script calls of the
// API without sharing: its Redis client's connections.
const callsInFlight = 64

type counters struct {
	broker            *broker
	noop, api, single *child
}

// benchHTTP runs the same load on a handler that does nothing,
// on the API, and on an API whose claims share no calls.
func benchHTTP(b *testing.B, s *sheet) {
	r := newBroker(b)
	s.Facts = []string{r.version(b), wrkVersion(b)}
	c := &counters{broker: r}
	c.api = startChild(b, childAPI, childSettings{RedisURL: r.server.URL()})
	c.single = startChild(b, childAPI, childSettings{RedisURL: r.server.URL(), ClaimsPerCall: 1, ClaimsInFlight: callsInFlight})
	header, body := c.sample(b)
	c.noop = startChild(b, childNoop, childSettings{Header: header, Body: body})
	var sides, compare []func()
	for _, connections := range []int{50, 200} {
		more, ratios := c.sides(b, s, connections)
		sides, compare = append(sides, more...), append(compare, ratios)
	}
	s.takeTurns(sides)
	for _, ratios := range compare {
		ratios()
	}
	s.note(fmt.Sprintf("wrk with one thread posts for %s at a time, each claim by a user of its own, against servers in processes of their own.", wrkSpan()))
	s.note("The no-op handler reads the body and answers 201 with the headers and the body of a claim. No consumer runs.")
	s.note(fmt.Sprintf("One script call a request: the same API with ClaimsPerCall 1 and up to %d calls in flight.", callsInFlight))
}

// sides returns one number of connections' sides, and ratios to
// call after them.
func (c *counters) sides(b *testing.B, s *sheet, connections int) (sides []func(), ratios func()) {
	at := func(what string) string { return fmt.Sprintf("%s, %d connections", what, connections) }
	noop, claims, keyed, single := at("no-op handler"), at("claims"), at("claims with keys"), at("claims, one script call a request")
	sold, soldKeyed := at("sold-out refusals"), at("sold-out refusals with keys")
	ratios = func() {
		s.ratio(b, at("claims / no-op"), claims, noop, 0)
		s.ratio(b, at("CPU of the server, claims / no-op"), claims+": CPU of the server", noop+": CPU of the server", 0)
		s.ratio(b, at("claims with keys / no-op"), keyed, noop, 0)
		s.ratio(b, at("claims / one script call a request"), claims, single, 1.7)
		s.ratio(b, at("sold-out / no-op"), sold, noop, 0.9)
		s.ratio(b, at("sold-out with keys / no-op"), soldKeyed, noop, 0)
	}
	return []func(){
		func() {
			s.load(b, noop, c.noop, func() wrkResult { return wrk(b, c.noop.addr, "any", connections, false) })
		},
		func() { c.accepted(b, s, claims, c.api, connections, false) },
		func() { c.accepted(b, s, keyed, c.api, connections, true) },
		func() { c.accepted(b, s, single, c.single, connections, false) },
		func() { c.refused(b, s, sold, connections, false) },
		func() { c.refused(b, s, soldKeyed, connections, true) },
	}, ratios
}

func (s *sheet) load(b *testing.B, name string, server *child, run func() wrkResult) wrkResult {
	b.Helper()
	before := server.cpu(b)
	r := run()
	s.add(name, "requests/s", r.rate())
	s.add(name+": p99", "ms", float64(r.P99Us)/1000)
	s.add(name+": CPU of the server", "µs/request", perClaim(server.cpu(b)-before, r.Requests))
	return r
}

// accepted loads a server with claims of a campaign with plenty of stock.
func (c *counters) accepted(b *testing.B, s *sheet, name string, server *child, connections int, keyed bool) {
	m := c.broker.campaign(b, plenty)
	before := c.broker.usage(b)
	r := s.load(b, name, server, func() wrkResult { return wrk(b, server.addr, m.ID, connections, keyed) })
	require.Zero(b, r.Refused)
	// Claims in transit at the end are taken but not counted.
	taken := c.broker.taken(b, m)
	require.GreaterOrEqual(b, taken, r.Requests)
	require.LessOrEqual(b, taken, r.Requests+int64(connections))
	now := c.broker.usage(b)
	s.add(name+": CPU of Redis", "µs/request", perClaim(now.cpu-before.cpu, taken))
	s.add(name+": shared by a script call", "claims", float64(taken)/float64(now.evalshas-before.evalshas))
	c.broker.forget(b, m)
}

// refused loads the API with claims of a campaign with nothing left.
func (c *counters) refused(b *testing.B, s *sheet, name string, connections int, keyed bool) {
	m := c.broker.campaign(b, 1)
	c.broker.fill(b, m, "first-", 1, false)
	r := s.load(b, name, c.api, func() wrkResult { return wrk(b, c.api.addr, m.ID, connections, keyed) })
	require.Equal(b, r.Requests, r.Refused)
	require.Equal(b, int64(1), c.broker.taken(b, m))
	c.broker.forget(b, m)
}

// sample is a claim's reply: headers without those added by
// net/http, and body.
func (c *counters) sample(b *testing.B) (http.Header, string) {
	b.Helper()
	m := c.broker.campaign(b, plenty)
	url := "http://" + c.api.addr + "/v1/campaigns/" + m.ID + "/claims"
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(`{"user_id":"user-1-0-10000"}`))
	require.NoError(b, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(b, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b, err)
	require.Equal(b, http.StatusCreated, resp.StatusCode, string(body))
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	resp.Header.Del("Date")
	resp.Header.Del("Content-Length")
	c.broker.forget(b, m)
	return resp.Header, string(body)
}
