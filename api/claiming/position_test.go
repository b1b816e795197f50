package claiming_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// watchful is a loader that can't bring anything back, and remembers what it was told.
type watchful struct {
	*apitest.Definitions
	mu   sync.Mutex
	told []lua.Position
}

func (w *watchful) Recover(_ context.Context, _ string, seen lua.Position) (lua.Meta, error) {
	w.mu.Lock()
	w.told = append(w.told, seen)
	w.mu.Unlock()
	return lua.Meta{}, apitest.ErrLost
}

// A process that was notified of a claim takes no other from a Redis that has forgotten it, and says how far it was.
func TestPosition_ARedisThatWasRolledBackIsRefusedAndReported(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t)
	scripts, err := lua.New(rdb.Client(), lua.Options{})
	require.NoError(t, err)
	room := apitest.NewFake()
	room.Put(models.Campaign{ID: "spring", Total: 100, Version: 1})
	w := &watchful{Definitions: &apitest.Definitions{Fake: room, Scripts: scripts, Loaded: map[string]bool{}}}
	reg := prometheus.NewRegistry()
	s, err := api.New(api.Config{Logger: slog.New(slog.DiscardHandler), Registerer: reg, Gatherer: reg}, api.Deps{
		Claimer: scripts, States: scripts, Shared: w, Loader: w, Campaigns: w, Claims: w, Resolver: w, Audit: w.Audit, Groups: w.Groups, Ledger: apitest.Ledger{}, Applied: w, Ready: func(context.Context) error { return nil },
	})
	require.NoError(t, err)
	claim := func(user string) int {
		rec := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/campaigns/spring/claims", strings.NewReader(`{"user_id":"`+user+`"}`))
		req.Header.Set("Content-Type", "application/json")
		apitest.AtHome(s.Handler()).ServeHTTP(rec, req)
		return rec.Code
	}
	require.Equal(t, http.StatusCreated, claim("a"))
	key := lua.KeysOf("spring", 0).State
	before, err := rdb.Client().HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, claim("b"))
	require.NoError(t, rdb.Client().HSet(t.Context(), key, before).Err()) // Redis is restored to before b

	require.Equal(t, http.StatusServiceUnavailable, claim("c"))
	require.Equal(t, http.StatusServiceUnavailable, claim("d"))
	_, err = scripts.State(t.Context(), "spring")
	require.ErrorIs(t, err, lua.ErrAbsent, "it is stopped")
	held, err := rdb.Client().HMGet(t.Context(), key, "taken", "seq").Result()
	require.NoError(t, err)
	require.Equal(t, []any{"1", "1"}, held, "nothing was taken")
	require.Equal(t, lua.Position{Epoch: 1, Seq: 2, Units: 2}, w.told[0])
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP dibs_rolled_back_total Calls that took nothing because Redis was rolled back behind what this process had seen of the campaign.
# TYPE dibs_rolled_back_total counter
dibs_rolled_back_total 1
`), "dibs_rolled_back_total"))
}

// A process that is new to a campaign learns from MySQL what Redis must not be behind of.
func TestPosition_ANewProcessKnowsWhatMySQLKnows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inMySQL models.Campaign
		told    lua.Position
	}{
		"rows":               {models.Campaign{Epoch: 1, Sold: 5}, lua.Position{Epoch: 1, Units: 5}},
		"what was lost":      {models.Campaign{Epoch: 1, Sold: 2, LostUnits: 2, GivenUpUnits: 1}, lua.Position{Epoch: 1, Units: 5}},
		"what others saw":    {models.Campaign{Epoch: 1, Sold: 2, SeenUnits: 5, SeenSeq: 3}, lua.Position{Epoch: 1, Seq: 3, Units: 5}},
		"a load":             {models.Campaign{Epoch: 2}, lua.Position{Epoch: 2}},
		"no more than Redis": {models.Campaign{Epoch: 1}, lua.Position{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scripts, err := lua.New(testenv.Redis(t).Client(), lua.Options{})
			require.NoError(t, err)
			one := models.Campaign{ID: "spring", Kind: models.KindCoupon, Status: models.StatusOpen, TimeZone: "UTC", Total: 100, Version: 1, Epoch: 1}
			_, err = scripts.Load(t.Context(), &one)
			require.NoError(t, err)
			c.inMySQL.ID, c.inMySQL.Total, c.inMySQL.Version = "spring", 100, 1
			room := apitest.NewFake()
			room.Put(c.inMySQL)
			w := &watchful{Definitions: &apitest.Definitions{Fake: room, Scripts: scripts, Loaded: map[string]bool{}}}
			code := apitest.Ask(realServerWith(t, w), http.MethodPost, "/v1/campaigns/spring/claims", apitest.OneClaim).Code
			if c.told == (lua.Position{}) {
				require.Equal(t, http.StatusCreated, code)
				require.Empty(t, w.told)
				return
			}
			require.Equal(t, http.StatusServiceUnavailable, code)
			require.Equal(t, []lua.Position{c.told}, w.told)
		})
	}
}

func realServerWith(t *testing.T, w *watchful) http.Handler {
	t.Helper()
	reg := prometheus.NewRegistry()
	s, err := api.New(api.Config{Logger: slog.New(slog.DiscardHandler), Registerer: reg, Gatherer: reg}, api.Deps{
		Claimer: w.Scripts, States: w.Scripts, Shared: w, Loader: w, Campaigns: w, Claims: w, Resolver: w, Audit: w.Audit, Groups: w.Groups, Ledger: apitest.Ledger{}, Applied: w, Ready: func(context.Context) error { return nil },
	})
	require.NoError(t, err)
	return apitest.AtHome(s.Handler())
}
