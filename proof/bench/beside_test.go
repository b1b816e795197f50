package bench_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	besideConnections = 50
	besideClaims      = 200_000 // of the ledger being read
	besideReadRate    = 50_000  // rows a second
)

// benchBeside loads the API alone, beside a ledger reader, and
// beside webhooks, of which one receiver may be dead.
func benchBeside(b *testing.B, s *sheet) {
	w := newWhole(b)
	s.Facts = append(w.facts(b), wrkVersion(b))
	w.span = longSpan()
	w.startBoth(b)
	read := w.create(b)
	sendBatches(b, w.api.addr, amount(besideClaims), []string{read})
	w.untilDrained(b, read)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()

	alone, ledger := "claims", fmt.Sprintf("claims beside a ledger read at %d rows/s", besideReadRate)
	good, dead := "claims beside webhooks", "claims beside webhooks, one receiver of two dead"
	hooks := func(name string, urls ...string) func() {
		file := hookFile(b, urls...)
		return func() {
			_, stop := runDibs(b, w.program, "webhooks", append(w.settings, "DIBS_WEBHOOKS_FILE="+file, "DIBS_WEBHOOKS_PRIVATE=1")...)
			defer stop()
			w.acceptedOf(b, s, w.create(b), name, besideConnections)
		}
	}
	s.takeTurns([]func(){
		func() { w.acceptedOf(b, s, w.create(b), alone, besideConnections) },
		func() {
			stop := w.readLedger(b, s, read)
			defer stop()
			w.acceptedOf(b, s, w.create(b), ledger, besideConnections)
		},
		hooks(good, receiver.URL),
		hooks(dead, receiver.URL, "http://127.0.0.1:1/"),
	})
	s.ratio(b, ledger+" / "+alone, ledger, alone, 0.95)
	s.ratio(b, good+" / "+alone, good, alone, 0)
	s.ratio(b, dead+" / with both alive", dead, good, 0.97)
	s.note(fmt.Sprintf("`dibs api`, `dibs consumer` and `dibs webhooks` as built for production, %d connections without pause; Redis, SQL server, wrk,"+
		" receiver and reader share the cores with them, so that whatever a follower uses is missing from claims.", besideConnections))
}

func hookFile(b *testing.B, urls ...string) string {
	b.Helper()
	list := ""
	for i, url := range urls {
		list += fmt.Sprintf(`%s{"name":"e%d","url":%q,"secrets":[%q],"events":["claim.accepted"]}`, []string{"", ","}[min(i, 1)], i, url, hookKey)
	}
	path := filepath.Join(b.TempDir(), "webhooks.json")
	require.NoError(b, os.WriteFile(path, []byte(`{"endpoints":[`+list+`]}`), 0o600))
	return path
}

// readLedger reads a campaign's ledger as CSV repeatedly, at
// besideReadRate, until stop is called.
func (w *whole) readLedger(b *testing.B, s *sheet, id string) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan int)
	started := time.Now()
	go func() {
		rows := 0
		for ctx.Err() == nil {
			rows += w.readLedgerOnce(ctx, id, started, rows)
		}
		done <- rows
	}()
	return func() {
		cancel()
		s.add("rows of the ledger that were read", "rows/s", float64(<-done)/time.Since(started).Seconds())
	}
}

// readLedgerOnce returns the number of rows read. before is the
// number read since the start, for pacing.
func (w *whole) readLedgerOnce(ctx context.Context, id string, started time.Time, before int) (rows int) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.api.addr+"/v1/campaigns/"+id+"/ledger", nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Accept", "text/csv")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		rows++
		if rows%500 == 0 {
			due := started.Add(time.Duration(before+rows) * time.Second / besideReadRate)
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				return rows
			}
		}
	}
	return rows
}
