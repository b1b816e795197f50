package claiming_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

// watchful is a loader that can't load anything. It records the
// positions it got.
type watchful struct {
	*apitest.Definitions
	mu       sync.Mutex
	reported []lua.Position
}

func (w *watchful) Recover(_ context.Context, _ string, seen lua.Position) (lua.Meta, error) {
	w.mu.Lock()
	w.reported = append(w.reported, seen)
	w.mu.Unlock()
	return lua.Meta{}, apitest.ErrLost
}

// A process must not claim from a Redis that lost a claim it has seen.
// It must report its position.
func TestPosition_ARedisThatWasRolledBackIsRefusedAndReported(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t)
	scripts, err := lua.New(rdb.Client(), lua.Options{})
	require.NoError(t, err)
	fake := apitest.NewFake()
	fake.Put(models.Campaign{ID: "spring", Total: 100, Version: 1})
	w := &watchful{Definitions: &apitest.Definitions{Fake: fake, Scripts: scripts, Loaded: map[string]bool{}}}
	h := apitest.AtHome(realServer(t, w.Definitions, func(deps *api.Deps) { deps.Loader = w }).Handler())
	claim := func(user string) int {
		return apitest.Ask(h, http.MethodPost, "/v1/campaigns/spring/claims", `{"user_id":"`+user+`"}`).Code
	}
	require.Equal(t, http.StatusCreated, claim("a"))
	key := lua.KeysOf("spring", 0).State
	before, err := rdb.Client().HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, claim("b"))
	// Redis is restored to before b
	require.NoError(t, rdb.Client().HSet(t.Context(), key, before).Err())

	require.Equal(t, http.StatusServiceUnavailable, claim("c"))
	_, err = scripts.State(t.Context(), "spring")
	require.ErrorIs(t, err, lua.ErrAbsent, "it is stopped")
	held, err := rdb.Client().HMGet(t.Context(), key, "taken", "seq").Result()
	require.NoError(t, err)
	require.Equal(t, []any{"1", "1"}, held, "nothing was taken")
	require.Equal(t, lua.Position{Epoch: 1, Seq: 2, Units: 2}, w.reported[0])
}

// A process without claims of a campaign must take the position from MySQL.
func TestPosition_ANewProcessKnowsWhatMySQLKnows(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t)
	for name, c := range map[string]struct {
		inMySQL  models.Campaign
		reported lua.Position
	}{
		"rows":               {models.Campaign{Epoch: 1, Sold: 5}, lua.Position{Epoch: 1, Units: 5}},
		"what was lost":      {models.Campaign{Epoch: 1, Sold: 2, LostUnits: 2, GivenUpUnits: 1}, lua.Position{Epoch: 1, Units: 5}},
		"what others saw":    {models.Campaign{Epoch: 1, Sold: 2, SeenUnits: 5, SeenSeq: 3}, lua.Position{Epoch: 1, Seq: 3, Units: 5}},
		"a load":             {models.Campaign{Epoch: 2}, lua.Position{Epoch: 2}},
		"no more than Redis": {models.Campaign{Epoch: 1}, lua.Position{}},
	} {
		scripts, err := lua.New(rdb.Client(), lua.Options{})
		require.NoError(t, err)
		one := models.Campaign{
			ID: testenv.UniqueID(t, "c"), Kind: models.KindCoupon, Status: models.StatusOpen, TimeZone: "UTC", Total: 100, Version: 1, Epoch: 1,
		}
		_, err = scripts.Load(t.Context(), &one)
		require.NoError(t, err)
		c.inMySQL.ID, c.inMySQL.Total, c.inMySQL.Version = one.ID, 100, 1
		fake := apitest.NewFake()
		fake.Put(c.inMySQL)
		w := &watchful{Definitions: &apitest.Definitions{Fake: fake, Scripts: scripts, Loaded: map[string]bool{}}}
		s := realServer(t, w.Definitions, func(deps *api.Deps) { deps.Loader = w })
		code := apitest.Ask(apitest.AtHome(s.Handler()), http.MethodPost, "/v1/campaigns/"+one.ID+"/claims", apitest.OneClaim).Code
		if c.reported == (lua.Position{}) {
			require.Equal(t, http.StatusCreated, code, name)
			require.Empty(t, w.reported)
			continue
		}
		require.Equal(t, http.StatusServiceUnavailable, code, name)
		require.Equal(t, []lua.Position{c.reported}, w.reported, name)
	}
}

// realServer is an API with the scripts of definitions. change
// replaces other parts.
func realServer(t *testing.T, d *apitest.Definitions, change func(*api.Deps)) *api.Server {
	t.Helper()
	deps := d.Deps()
	deps.Claimer, deps.States, deps.Loader, deps.Campaigns = d.Scripts, d.Scripts, d, d
	change(&deps)
	reg := prometheus.NewRegistry()
	s, err := api.New(api.Config{Logger: slog.New(slog.DiscardHandler), Registerer: reg, Gatherer: reg}, deps)
	require.NoError(t, err)
	return s
}
