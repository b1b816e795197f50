package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/testenv"
)

// sqlTool runs a client program of MariaDB or MySQL with a file as its input.
func sqlTool(t *testing.T, names []string, addr, input string, args ...string) []byte {
	t.Helper()
	var program string
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		t.Skipf("NOT TESTED: none of %v is installed", names)
	}
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	args = append([]string{"--no-defaults", "--host=" + host, "--port=" + port, "--protocol=tcp", "--user=root"}, args...)
	cmd := exec.CommandContext(t.Context(), program, args...)
	if input != "" {
		in, err := os.Open(input)
		require.NoError(t, err)
		defer func() { _ = in.Close() }()
		cmd.Stdin = in
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s %v: %s", program, args, errs.String())
	return out.Bytes()
}

var (
	sqlDump   = []string{"mariadb-dump", "mysqldump"}
	sqlClient = []string{"mariadb", "mysql"}
)

// dumpSQL dumps the database, and returns the dump's file.
func (s *system) dumpSQL() (file string) {
	s.t.Helper()
	text := sqlTool(s.t, sqlDump, s.sql.Addr(), "", "--single-transaction", "dibs")
	file = filepath.Join(s.t.TempDir(), "dump.sql")
	require.NoError(s.t, os.WriteFile(file, text, 0o600))
	return file
}

func (s *system) restoreSQL(dump string) {
	s.t.Helper()
	sqlTool(s.t, sqlClient, s.sql.Addr(), "", "-e", "DROP DATABASE dibs; CREATE DATABASE dibs")
	sqlTool(s.t, sqlClient, s.sql.Addr(), dump, "dibs")
}

// shop receives webhooks and stores event ids.
type shop struct {
	down atomic.Bool

	mu  sync.Mutex
	ids map[string]bool
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Data struct{ ID string } }
	text, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(text, &body) != nil || s.down.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[body.Data.ID] = true
}

func (s *shop) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids)
}

func openShop(t *testing.T) (*shop, string) {
	t.Helper()
	s := &shop{ids: map[string]bool{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "endpoints.json")
	text := fmt.Sprintf(`{"endpoints":[{"name":"shop","url":%q,"secrets":["whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="],`+
		`"events":["claim.accepted"]}]}`, server.URL)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return s, file
}

// MySQL is restored to a dump under load while all roles run.
// Afterwards no redeem of the gap may be made by another order.
// Finance, with its own database, must have credited each packet
// once. Webhooks must have reported each claim.
func TestARestoredMySQLForgetsNoRedeem(t *testing.T) {
	t.Parallel()
	hook, file := openShop(t)
	hook.down.Store(true) // so that events wait in MySQL
	l := newLedger(t, setup{
		ownSQL: true, settings: map[string]string{"DIBS_READ_AHEAD": "false", "DIBS_STREAM_KEEP": "1h"},
	})
	books := testenv.Database(t)
	store, err := sqlstore.Open(t.Context(), sqlstore.Config{DSN: books.DSN, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(store)) })
	finance := maps.Clone(l.settings)
	finance["DIBS_FINANCE_DSN"] = books.DSN
	require.Equal(t, exitOK, runDibs(t, finance, "migrate").code)
	for _, name := range []string{"one", "two"} {
		l.launch("consumer", map[string]string{"DIBS_NAME": name})
	}
	l.launch("syncer", nil)
	l.launch("finance", map[string]string{"DIBS_FINANCE_DSN": books.DSN})
	l.launch("webhooks", map[string]string{"DIBS_WEBHOOKS_FILE": file, "DIBS_WEBHOOKS_PRIVATE": "1"})
	api := l.launch("api", nil)
	c := openCampaign(t, api.url, campaign{Total: 10_000, PerUser: 3})
	gift := testenv.UniqueID(t, "gift")
	got := call(t, http.MethodPost, api.url+"/v1/campaigns", "", map[string]any{"id": gift, "kind": "packet", "per_user": 1, "currency": "CNY", "sender_id": "boss"})
	require.Equal(t, http.StatusCreated, got.status, got.body)
	got = call(t, http.MethodPost, api.url+"/v1/campaigns/"+gift+"/packets", uuid.NewString(), map[string]any{"count": 50, "amount": 5000, "split": "even"})
	require.Equal(t, http.StatusCreated, got.status, got.body)
	claim := func(campaign, user string) (id string) {
		t.Helper()
		var claim struct{ ID string }
		got := claimUntilAnswered(t, api.url, campaign, user, 1, user)
		require.Equal(t, http.StatusCreated, got.status, got.body)
		require.NoError(t, json.Unmarshal([]byte(got.body), &claim))
		return claim.ID
	}
	redeem := func(claim, order string) (got reply) {
		t.Helper()
		eventually(t, upTimeout, "a redeem is not answered", func() bool {
			got = call(t, http.MethodPost, api.url+"/v1/claims/"+claim+"/redeem", "", map[string]any{"order_id": order})
			return got.err == nil && got.status != http.StatusServiceUnavailable && got.status != http.StatusNotFound
		})
		return got
	}
	s := &system{servers: l.servers, t: t, settings: l.settings}
	claim(c.ID, "before")
	eventually(t, drainWithin, "the webhooks leave no mark", func() bool {
		var marks int
		return l.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM settings WHERE name LIKE 'webhooks:%'").Scan(&marks) == nil && marks > 0
	})
	dump := s.dumpSQL()

	rush := startRush(t, crowd.Plan{BaseURLs: []string{api.url}, CampaignID: c.ID, Users: 2_000, Connections: 10, PerSecond: 400})
	rush.reaches(200)
	redeemed := make([]string, 40)
	for i := range redeemed {
		redeemed[i] = claim(c.ID, fmt.Sprint("redeems-", i))
		got := redeem(redeemed[i], fmt.Sprint("order-", i))
		require.Equal(t, http.StatusOK, got.status, got.body)
		claim(gift, fmt.Sprint("friend-", i))
	}
	eventually(t, drainWithin, "no event waits in MySQL", func() bool {
		var waiting int
		return l.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM webhook_events").Scan(&waiting) == nil && waiting > len(redeemed)
	})
	s.restoreSQL(dump)
	hook.down.Store(false)
	for i, id := range redeemed {
		got := redeem(id, "another order")
		require.Equal(t, http.StatusConflict, got.status, "%d: %s", i, got.body)
		require.Contains(t, got.body, `"code":"already_redeemed"`)
		require.Equal(t, http.StatusOK, redeem(id, fmt.Sprint("order-", i)).status, "the same order is told the same")
	}
	tally := rush.wait()
	claims := tally.Accepted + 1 + len(redeemed)
	eventually(t, drainWithin, "claims are missing", func() bool {
		var rows, owners int
		return l.db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM claims WHERE campaign_id = ?), (SELECT COUNT(claim_id) FROM packets)",
			c.ID).Scan(&rows, &owners) == nil && rows == claims && owners == len(redeemed)
	})
	eventually(t, drainWithin, "webhooks are missing", func() bool { return hook.count() == claims+len(redeemed) })
	var entries, users int
	eventually(t, drainWithin, "credits are missing", func() bool {
		require.NoError(t, store.WithContext(t.Context()).Raw("SELECT COUNT(*), COUNT(DISTINCT user_id) FROM account_entries").Row().Scan(&entries, &users))
		return users == len(redeemed)
	})
	require.Equal(t, users, entries, "each once")
	eventually(t, 30*time.Second, "dibs reconcile does not agree", func() bool { return runDibs(t, l.settings, "reconcile").code == exitOK })
}
