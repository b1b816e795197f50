package bench_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dibs/api/operator"
	"dibs/internal/ledger"
	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/event"
)

const (
	ledgerRows   = 1_000_000
	ledgerTarget = 50_000 // rows a second
)

// benchLedger measures reading a ledger over HTTP: all of it as
// CSV, and pages from its start and its end.
func benchLedger(b *testing.B, s *sheet) {
	st := stores(b)[0]
	s.Facts = []string{st.version(b)}
	db := syncertest.OpenServer(b)
	const id = "big"
	n := amount(ledgerRows)
	syncertest.AddCampaign(b, db, id, int64(n))
	events := syncertest.ClaimsOf(id, 1, int64(n))
	started := time.Now().UTC().Add(-time.Hour)
	for i := range events {
		events[i].ID = uuid.Must(uuid.NewV7()).String()
		// 20,000 a second
		events[i].At = models.NewTime(started.Add(time.Duration(i/20) * time.Millisecond))
	}
	syncertest.RawInsert(b, db, events)
	require.NoError(b, db.Exec("UPDATE lots SET synced_seq = ?, residency = 'evicted' WHERE id = ?", n, id).Error)
	require.NoError(b, db.Exec("INSERT INTO streams (partition_no, complete_at) VALUES (0, ?)", time.Now().UTC()).Error)
	routes := operator.New(operator.Config{Ledger: ledger.New(db), Logger: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/campaigns/{id}/ledger", func(w http.ResponseWriter, r *http.Request) { routes.GetLedger(w, r) })
	server := httptest.NewServer(mux)
	defer server.Close()
	get := func(query, accept string) (lines int) {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, server.URL+"/v1/campaigns/"+id+"/ledger"+query, nil)
		require.NoError(b, err)
		req.Header.Set("Accept", accept)
		res, err := http.DefaultClient.Do(req)
		require.NoError(b, err)
		defer func() { _ = res.Body.Close() }()
		require.Equal(b, http.StatusOK, res.StatusCode)
		read := bufio.NewScanner(res.Body)
		read.Buffer(nil, 16<<20)
		for read.Scan() {
			lines++
		}
		require.NoError(b, read.Err())
		return lines
	}
	page := func(after int) func() {
		place := event.PlaceOf(&events[after])
		return func() {
			start := time.Now()
			get(fmt.Sprintf("?limit=1000&after=%s", place), "application/json")
			s.add(fmt.Sprintf("a page of 1,000 from row %d of %d", after+1, n), "ms", float64(time.Since(start).Microseconds())/1000)
		}
	}
	const all = "the whole ledger as CSV"
	s.takeTurns([]func(){page(0), page(n - 2000), func() {
		start := time.Now()
		require.Equal(b, n+1, get("", "text/csv"))
		s.add(all, "rows/s", float64(n)/time.Since(start).Seconds())
	}})
	s.goal(b, all, atLeast, ledgerTarget)
	s.note("One API process, its client and the SQL server on this machine.")
}
