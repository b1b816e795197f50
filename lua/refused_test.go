package lua_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

func TestServerThatTakesNoWritesChangesNothing(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		conf        []string
		word        string // of Redis' refusal
		breaks, fix func(t *testing.T, rdb redis.UniversalClient)
	}{
		"out of memory": {nil, "OOM", set("maxmemory", "1"), set("maxmemory", "0")},
		"snapshots fail": {[]string{"save 3600 1000000"}, "MISCONF",
			func(t *testing.T, rdb redis.UniversalClient) {
				require.NoError(t, os.MkdirAll(filepath.Join(snapshotFile(t, rdb), "in the way"), 0o700))
				require.NoError(t, rdb.BgSave(t.Context()).Err())
				requireInfo(t, rdb, "rdb_last_bgsave_status:err")
			},
			func(t *testing.T, rdb redis.UniversalClient) {
				require.NoError(t, os.RemoveAll(snapshotFile(t, rdb)))
				require.NoError(t, rdb.BgSave(t.Context()).Err())
				requireInfo(t, rdb, "rdb_last_bgsave_status:ok")
			}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t, row.conf...)
			rdb := connect(t, server.URL())
			b := newBundle(t, rdb, nil)
			known := want("u", 1, "k")
			releases := []lua.Release{b.taken(known), b.taken(want("v", 1, ""))}
			p := newPackets(t, rdb)
			p.push(0, "a", 1)

			b.unchanged("the check", func() { require.NoError(t, writable(t, b.s)) })
			row.breaks(t, rdb)
			defer row.fix(t, rdb) // a server that can't save does not end
			before := server.Dump(t.Context())
			err := writable(t, b.s)
			require.ErrorIs(t, err, lua.ErrUnavailable)
			require.ErrorContains(t, err, row.word)
			for name, write := range writes(b, p, releases) {
				err := write()
				require.ErrorIs(t, err, lua.ErrUnavailable, name)
				require.ErrorContains(t, err, row.word, name)
			}
			require.Equal(t, before, server.Dump(t.Context()))
			require.Equal(t, []models.Outcome{models.OutcomeReplayed}, b.outcomes(known), "what writes nothing goes on")

			row.fix(t, rdb)
			require.NoError(t, writable(t, b.s))
			require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeClaimed}, b.outcomes(wants("w", 2)...))
			b.requireBooks()
			require.Equal(t, []lua.Released{0, 0}, b.giveBack(releases...))
			require.Equal(t, []string{"a:1"}, p.take("u"))
		})
	}
}

// writable is why no partition takes claims.
func writable(t *testing.T, s *lua.Scripts) error {
	t.Helper()
	away := s.Away(t.Context())
	if len(away) < s.Partitions() {
		return nil
	}
	return away[0]
}

// writes are calls of all scripts that write, by name.
func writes(b *bundle, p *packets, releases []lua.Release) map[string]func() error {
	ctx := b.t.Context()
	lowered, other := *b.c, *b.c
	lowered.Version, lowered.Total, lowered.LowStockAt = 2, 0, 5 // crosses both lines
	other.ID += "-other"
	push := &lua.Push{Epoch: 1, After: 1, Upto: 2, Units: 1, Packets: []models.Packet{{ID: "c", Amount: 3}}}
	return map[string]func() error{
		"a claim":      func() error { _, _, err := b.s.Claim(ctx, b.meta, wants("new", 1)); return err },
		"three claims": func() error { _, _, err := b.s.Claim(ctx, b.meta, wants("new", 3)); return err },
		"a packet":     func() error { _, _, err := p.s.Claim(ctx, p.meta, wants("new", 1)); return err },
		"releases":     func() error { _, err := b.s.Release(ctx, b.c, releases); return err },
		"a change":     func() error { _, err := b.s.Adjust(ctx, &lowered, nil); return err },
		"a push":       func() error { _, err := p.s.Push(ctx, p.c.ID, push); return err },
		"a load":       func() error { _, err := b.s.Load(ctx, &other); return err },
	}
}

func set(name, value string) func(t *testing.T, rdb redis.UniversalClient) {
	return func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		require.NoError(t, rdb.ConfigSet(t.Context(), name, value).Err())
	}
}

func snapshotFile(t *testing.T, rdb redis.UniversalClient) string {
	t.Helper()
	conf, err := rdb.ConfigGet(t.Context(), "d*").Result()
	require.NoError(t, err)
	return filepath.Join(conf["dir"], conf["dbfilename"])
}

func requireInfo(t *testing.T, rdb redis.UniversalClient, line string) {
	t.Helper()
	require.Eventually(t, func() bool {
		info, err := rdb.Info(t.Context(), "persistence").Result()
		require.NoError(t, err)
		return strings.Contains(info, line+"\r\n")
	}, time.Minute, 10*time.Millisecond)
}
