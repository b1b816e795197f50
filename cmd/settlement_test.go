package cmd_test

import (
	"encoding/csv"
	"log/slog"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
)

func (r *running) ledgerOf(campaign string) (events []event.Event) {
	r.t.Helper()
	for after := ""; ; {
		var page struct {
			Events []event.Event `json:"events"`
			Next   string        `json:"next"`
		}
		r.get("/v1/campaigns/"+campaign+"/ledger?limit=4&after="+after).into(r.t, &page)
		if len(page.Events) == 0 {
			return events
		}
		events = append(events, page.Events...)
		after = page.Next
	}
}

// rowsOf are the rows of a table of finance.py's books.
func rowsOf(t *testing.T, books, query string) (rows []string) {
	t.Helper()
	db, err := sqlstore.Open(t.Context(), sqlstore.Config{Path: books, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { _ = sqlstore.Close(db) }()
	_ = db.Raw(query).Scan(&rows).Error // it may not have made its tables yet
	return rows
}

func TestLedgerSettlesADayAndRebuildsTheBooksOfFinance(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	require.NoError(t, err, "run make servers, which installs python3")
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":10}`)
	serve.post("/campaigns", `{"id":"rain","kind":"packet","currency":"EUR","sender_id":"boss"}`)
	serve.post("/campaigns/rain/packets", `{"packets":[{"id":"a","amount":100},{"id":"b","amount":25},{"id":"c","amount":7},{"id":"d","amount":1},{"id":"e","amount":2}]}`)
	serve.claim("spring", "u1", "u2", "u3")
	serve.claim("rain", "u1", "u2", "u3", "u4")
	serve.post("/campaigns/rain/close", "{}")

	dir := t.TempDir()
	streamed := filepath.Join(dir, "streamed.db")
	finance := exec.CommandContext(t.Context(), python, "../docs/examples/finance.py", "--redis", s.redis.URL(), "--books", streamed)
	require.NoError(t, finance.Start())
	t.Cleanup(func() {
		_ = finance.Process.Kill()
		_ = finance.Wait()
	})
	const entries = "SELECT json_array(id, user_id, campaign_id, packet_id, seq, amount, currency, claimed_at, shard) FROM entries ORDER BY id"
	const accounts = "SELECT json_array(user_id, currency, amount, entries) FROM accounts ORDER BY user_id"
	require.Eventually(t, func() bool { return len(rowsOf(t, streamed, entries)) == 5 && len(serve.ledgerOf("rain")) == 5 }, within, 50*time.Millisecond)
	require.Eventually(t, func() bool { return len(serve.ledgerOf("spring")) == 3 }, within, 50*time.Millisecond)

	rebuilt := filepath.Join(dir, "rebuilt.db")
	out, err := exec.CommandContext(t.Context(), python, "../docs/examples/finance.py", "--books", rebuilt, "--rebuild", serve.url).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, rowsOf(t, streamed, entries), rowsOf(t, rebuilt, entries))
	require.Equal(t, rowsOf(t, streamed, accounts), rowsOf(t, rebuilt, accounts))

	answer := call(t, http.MethodGet, serve.url+"/v1/campaigns/rain/ledger", "", "Accept: text/csv")
	lines, err := csv.NewReader(strings.NewReader(answer.body)).ReadAll()
	require.NoError(t, err)
	events := serve.ledgerOf("rain")
	require.Len(t, lines, 1+len(events))
	for i, e := range events {
		require.Equal(t, []string{e.At.Format(models.TimeLayout), string(e.Type), e.ID}, lines[i+1][:3])
	}

	require.Equal(t, "\ufeff"+answer.body, serve.get("/v1/campaigns/rain/ledger?form=spreadsheet").body)
	today := events[0].At.Format(time.DateOnly)
	settled := serve.cli("settlement -o csv --date " + today)
	require.Equal(t, cmd.ExitFailed, settled.code)
	require.Contains(t, settled.stderr, "the day is not over")
	require.Equal(t, "date,campaign,currency,type,claims,units,amount,final\n"+
		today+",rain,EUR,campaign.closed,0,0,2,false\n"+today+",rain,EUR,claim.accepted,4,4,133,false\n"+today+",spring,,claim.accepted,3,3,0,false\n", settled.stdout)
	before := events[0].At.AddDate(0, 0, -2).Format(time.DateOnly)
	require.Contains(t, serve.ok("settlement --time-zone Europe/Berlin -o json --date "+before), `"final":true`)
	requireRefusal(t, serve.cli("settlement --date yesterday"), cmd.ExitFailed, "invalid", "date")
	for path, code := range map[string]int{
		"campaigns/none/ledger": http.StatusNotFound, "campaigns/rain/ledger?limit=1001": http.StatusUnprocessableEntity,
		"campaigns/rain/ledger?after=x": http.StatusUnprocessableEntity, "campaigns/rain/ledger?form=xlsx": http.StatusUnprocessableEntity,
		"settlements/2027-02-28?time_zone=Mars": http.StatusUnprocessableEntity,
	} {
		require.Equal(t, code, call(t, http.MethodGet, serve.url+"/v1/"+path, "").status, path)
	}
}
