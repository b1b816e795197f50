package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
)

// programOfBaseline builds, from the project's history, the program at the
// last change of the schema's baseline; once per commit.
func programOfBaseline(t *testing.T) string {
	t.Helper()
	const root = "../.."
	git := func(args string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", "git -C "+root+" "+args).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("log -1 --format=%H -- internal/migrations/mysql/00100_baseline.sql")
	if err != nil || commit == "" {
		t.Skipf("UPGRADE NOT TRIED: this is no git clone, so there is no program of before: %s", commit)
	}
	if shallow, _ := git("rev-parse --is-shallow-repository"); shallow != "false" {
		t.Skip("UPGRADE NOT TRIED: this clone is shallow, so it does not say when the baseline of the schema was made")
	}
	folder, err := filepath.Abs(filepath.Join(root, ".tools"))
	require.NoError(t, err)
	program := filepath.Join(folder, "dibs-before-"+commit)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	source := t.TempDir()
	said, err := git(fmt.Sprintf("archive %s | tar -x -C %s", commit, source))
	require.NoError(t, err, "%s", said)
	build := exec.CommandContext(t.Context(), "go", testenv.GoArgs("build", "-buildvcs=false", "-o", filepath.Join(source, "built"), ".")...)
	build.Dir = source
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.MkdirAll(folder, 0o750))
	place := exec.CommandContext(t.Context(), "bash", "-c", fmt.Sprintf("rm -f %[1]s/dibs-before-*; cp %[2]s/built %[3]s.new && mv %[3]s.new %[3]s", folder, source, program))
	out, err = place.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

func migrationsIn(t *testing.T, s *servers) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT MAX(version_id) FROM goose_db_version").Scan(&n))
	return n
}

// upgrade is a Dibs whose processes are rolled over under load.
type upgrade struct {
	t       *testing.T
	s       *servers
	apis    []*process
	all     []*process // in roll-over order
	b       *balancer
	front   string
	packets string // a campaign
	taken   int    // of its packets
}

// roll replaces one process after the other by another program.
func (u *upgrade) roll(program string) {
	u.t.Helper()
	for _, p := range u.all {
		require.Eventually(u.t, func() bool { return u.b.ready[0].Load() && u.b.ready[1].Load() }, upTimeout, pollEvery)
		p.stop()
		p.program = program
		p.restart()
		for range 20 {
			got := claimOnce(u.t, u.front, u.packets, fmt.Sprint("user-", u.taken), 1, "")
			require.Equal(u.t, http.StatusCreated, got.status, got.body)
			u.taken++
		}
	}
}

// requireBooked requires that each taken packet has its credit,
// and no hold stays open.
func (u *upgrade) requireBooked(held string) {
	u.t.Helper()
	count := func(query string, args ...any) (n int) {
		require.NoError(u.t, u.s.db.QueryRowContext(u.t.Context(), "SELECT COUNT(*) FROM "+query, args...).Scan(&n))
		return n
	}
	eventually(u.t, upTimeout, "a packet has no credit", func() bool {
		return count("account_entries WHERE campaign_id = ? AND seq IS NOT NULL", u.packets) == u.taken
	})
	eventually(u.t, upTimeout, "a hold does not end", func() bool {
		return count("claims WHERE campaign_id = ? AND status = 'claimed'", held) == 0 && count("claims WHERE campaign_id = ? AND status = 'expired'", held) > 0
	})
}

// addColumn migrates to a future version, in which a column was added.
func addColumn(t *testing.T, s *servers) {
	t.Helper()
	provider, err := goose.NewProvider(goose.DialectMySQL, s.db, os.DirFS("../migrations/testdata/mysql"))
	require.NoError(t, err)
	applied, err := provider.Up(t.Context())
	require.NoError(t, err)
	require.Len(t, applied, 2)
}

// The baseline's program takes claims while the schema is migrated to this
// version and beyond. Its processes are replaced one by one, and then rolled
// back. No claim may fail, each must have its row, sharded or not, packets
// must have their credits, and holds must end.
func TestGuide_Upgrade(t *testing.T) {
	t.Parallel()
	before := programOfBaseline(t)
	orders := [][]string{{"syncer", "api", "finance", "api", "consumer"}, {"consumer", "api", "api", "finance", "syncer"}, {"api", "api", "syncer", "consumer", "finance"}}
	for _, order := range orders[:testenv.Pick(1, len(orders))] {
		t.Run(strings.Join(order, " "), func(t *testing.T) {
			t.Parallel()
			tryUpgrade(t, before, order)
		})
	}
}

func tryUpgrade(t *testing.T, before string, order []string) {
	s := newServers(t, setup{noSchema: true, partitions: 2})
	settings := map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn, "DIBS_NAME": "one", "DIBS_PARTITIONS": "2"}
	oldDibs := func(args ...string) string {
		old := exec.CommandContext(t.Context(), before, args...)
		old.Env = environ(settings)
		out, err := old.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	oldDibs("migrate")
	schema := migrationsIn(t, &s)
	u := &upgrade{t: t, s: &s}
	for _, role := range order {
		p := makeProcess(t, role, settings)
		p.program = before
		p.restart()
		if role == "api" {
			u.apis = append(u.apis, p)
		}
		u.all = append(u.all, p)
	}
	c := openCampaign(t, u.apis[0].url, campaign{Total: 100_000_000})
	held := openCampaign(t, u.apis[0].url, campaign{Total: 100_000_000, HoldFor: "3s"})
	spread := testenv.UniqueID(t, "shards")
	got := call(t, http.MethodPost, u.apis[0].url+"/v1/campaigns", "", map[string]any{"id": spread, "kind": "coupon", "total": 100_000_000, "shards": 2})
	require.Equal(t, http.StatusCreated, got.status, got.body)
	u.packets = testenv.UniqueID(t, "packets")
	got = call(t, http.MethodPost, u.apis[0].url+"/v1/campaigns", "", map[string]any{"id": u.packets, "kind": "packet", "currency": "EUR", "sender_id": "boss"})
	require.Equal(t, http.StatusCreated, got.status, got.body)
	got = call(t, http.MethodPost, u.apis[0].url+"/v1/campaigns/"+u.packets+"/packets", "split", map[string]any{"count": 1000, "amount": 100_000, "split": "even"})
	require.Equal(t, http.StatusCreated, got.status, got.body)
	u.b, u.front = balance(t, u.apis)

	g := openGuide(t, "upgrade.md", &s, nil)
	stop, stopHeld := claimWithoutEnd(t, u.front, c.ID, 4), claimWithoutEnd(t, u.front, held.ID, 1)
	stopSpread := claimWithoutEnd(t, u.front, spread, 1)
	g.run("migrate")
	require.GreaterOrEqual(t, migrationsIn(t, &s), schema)
	addColumn(t, &s)
	require.Equal(t, http.StatusOK, statusOf(u.apis[0], "/readyz"))
	u.roll("")
	holds, failed := stopHeld()
	require.Empty(t, failed)
	require.Positive(t, holds)
	u.requireBooked(held.ID)
	require.Contains(t, g.run("compare"), "agree")

	stopHeld = claimWithoutEnd(t, u.front, held.ID, 1)
	slices.Reverse(u.all)
	u.roll(before)
	_, failed = stopHeld()
	require.Empty(t, failed)
	onShards, failed := stopSpread()
	require.Empty(t, failed)
	claimed, failed := stop()
	require.Empty(t, failed)
	require.Greater(t, claimed, int64(100), "there was load")
	(&system{servers: s, t: t}).awaitSynced(c.ID, int(claimed))
	(&system{servers: s, t: t}).awaitSynced(spread, int(onShards))
	u.requireBooked(held.ID)
	require.Contains(t, oldDibs("reconcile"), "agree")
	t.Logf("schema %d to %d and back, %d claims", schema, migrationsIn(t, &s), claimed)
}
