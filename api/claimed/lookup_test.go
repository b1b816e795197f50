package claimed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claimed"
	"dibs/api/workers"
	"dibs/internal/apitest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// lookups is a campaign over a real Redis without a consumer: the test decides which claims have their rows.
type lookups struct {
	t   *testing.T
	rdb *redis.Client
	d   *apitest.Definitions
	url string
	id  string // of the campaign
	h   http.Handler
}

const group = models.GroupSyncer

func newLookups(t *testing.T) *lookups {
	t.Helper()
	server := testenv.Redis(t)
	l := &lookups{t: t, rdb: server.Client(), d: &apitest.Definitions{Fake: apitest.NewFake(), Loaded: map[string]bool{}}, url: server.URL(), id: "spring"}
	l.h = apitest.RealServer(t, l.d, l.url, api.Config{})
	w := apitest.Ask(l.h, "POST", "/v1/campaigns", `{"id":"spring","kind":"coupon","total":1000000,"hold_for":"15m"}`)
	require.Equal(t, 201, w.Code, w.Body)
	return l
}

// other is another process.
func (l *lookups) other() http.Handler { return apitest.RealServer(l.t, l.d, l.url, api.Config{}) }

// routes is the look-ups of another process alone.
func (l *lookups) routes(reg prometheus.Registerer) *claimed.Routes {
	l.t.Helper()
	scripts, err := lua.New(l.rdb, lua.Options{})
	require.NoError(l.t, err)
	routes := claimed.New(claimed.Config{
		Claims: l.d, Resolver: l.d, Streams: scripts, Workers: &workers.Group{}, Changed: func(string) {}, CallTimeout: time.Minute,
		HoldOf: func(context.Context, string) (int64, error) { return 0, nil }, Logger: slog.New(slog.DiscardHandler), Registerer: reg,
	})
	return routes
}

func lookUpBy(routes *claimed.Routes) http.Handler {
	mux := http.NewServeMux()
	on := humago.New(mux, huma.DefaultConfig("look-ups", "1"))
	huma.Get(on, "/v1/claims/{id}", routes.GetClaim)
	huma.Get(on, "/v1/users/{user_id}/claims", routes.GetUserClaims)
	return mux
}

func (l *lookups) claim(user string) (claim models.Claim, body string) {
	l.t.Helper()
	encoded, err := json.Marshal(map[string]string{"user_id": user})
	require.NoError(l.t, err)
	w := apitest.Ask(l.h, "POST", "/v1/campaigns/spring/claims", string(encoded))
	require.Equal(l.t, 201, w.Code, w.Body)
	require.NoError(l.t, json.Unmarshal(w.Body.Bytes(), &claim))
	return claim, w.Body.String()
}

// take reads n entries as the consumer does, without acknowledging them.
func (l *lookups) take(n int64) []redis.XMessage {
	l.t.Helper()
	err := l.rdb.XGroupCreateMkStream(l.t.Context(), lua.StreamKey(0), group, "0").Err()
	if !redis.HasErrorPrefix(err, "BUSYGROUP") {
		require.NoError(l.t, err)
	}
	got, err := l.rdb.XReadGroup(l.t.Context(), &redis.XReadGroupArgs{
		Group: group, Consumer: "c", Streams: []string{lua.StreamKey(0), ">"}, Count: n, Block: -1,
	}).Result()
	require.NoError(l.t, err)
	require.Len(l.t, got[0].Messages, int(n))
	return got[0].Messages
}

// sync gives entries their rows, and acknowledges them.
func (l *lookups) sync(entries []redis.XMessage) {
	l.t.Helper()
	for _, entry := range entries {
		e, err := models.DecodeEvent([]byte(entry.Values["payload"].(string)))
		require.NoError(l.t, err)
		l.d.Mu.Lock()
		l.d.Campaigns[e.CampaignID].Rows = append(l.d.Campaigns[e.CampaignID].Rows, e.Claim(0))
		l.d.Mu.Unlock()
		require.NoError(l.t, l.rdb.XAck(l.t.Context(), lua.StreamKey(0), group, entry.ID).Err())
	}
}

func (l *lookups) booksAway(err error) {
	l.d.Mu.Lock()
	defer l.d.Mu.Unlock()
	l.d.Fail = err
}

func statusOf(h http.Handler, id string) int { return apitest.Ask(h, "GET", "/v1/claims/"+id, "").Code }

func TestLookup_AClaimIsFoundAtOnceAndReadsAsItWasAnswered(t *testing.T) {
	t.Parallel()
	l := newLookups(t)
	other := l.other()
	for i := range 20 {
		c, body := l.claim(fmt.Sprintf("Zoë & <co> %d", i))
		require.Contains(t, body, "expires_at")
		w := apitest.Ask(other, "GET", "/v1/claims/"+c.ID, "")
		require.Equal(t, 200, w.Code, w.Body)
		require.Equal(t, body, w.Body.String())
		require.Equal(t, `{"claims":[`+body+`]}`, apitest.Ask(other, "GET", "/v1/users/"+url.PathEscape(c.UserID)+"/claims", "").Body.String())
	}
	unknown := uuid.NewString()
	w := apitest.Ask(other, "GET", "/v1/claims/"+unknown, "")
	apitest.RequireProblem(t, 404, w.Header(), w.Body.Bytes(), "claim_not_found")
}

// Entries that a consumer has taken and not acknowledged are older than what it takes next, and not in MySQL either.
func TestLookup_AClaimOnItsWayIsFoundAndAnIndexFromTheLastDeliveredEntryIsCaught(t *testing.T) {
	t.Parallel()
	l := newLookups(t)
	var claims []models.Claim
	for i := range 10 {
		c, _ := l.claim(fmt.Sprint("u", i))
		claims = append(claims, c)
	}
	taken := l.take(6)
	l.sync(taken[:2]) // the frontier moves past these
	l.sync(taken[4:5])
	lost := func(h http.Handler) (lost []int) {
		for i, c := range claims {
			if statusOf(h, c.ID) != 200 {
				lost = append(lost, i)
			}
		}
		return lost
	}
	require.Empty(t, lost(l.other()))

	scripts, err := lua.New(l.rdb, lua.Options{})
	require.NoError(t, err)
	broken, err := api.New(api.Config{}, api.Deps{
		Claimer: scripts, States: scripts, Hydrator: l.d, Campaigns: l.d, Claims: l.d, Resolver: l.d, Audit: l.d.Audit, Groups: l.d.Groups, Ledger: apitest.Ledger{}, Streams: fromDelivered{scripts},
		Ready: func(context.Context) error { return nil },
	})
	require.NoError(t, err)
	require.Equal(t, []int{2, 3, 5}, lost(apitest.AtHome(broken.Handler())))
}

// fromDelivered is the control: it takes what was delivered for done.
type fromDelivered struct{ claimed.Streams }

func (f fromDelivered) Unread(ctx context.Context, p int, group string) (lua.Unread, error) {
	u, err := f.Streams.Unread(ctx, p, group)
	u.Pending = 0
	return u, err
}

// Between two looks a claim may go from the stream to MySQL: the order of the looks must not lose it.
func TestLookup_AClaimThatMovesBetweenTheTwoIsNotMissed(t *testing.T) {
	t.Parallel()
	l := newLookups(t)
	scripts, err := lua.New(l.rdb, lua.Options{})
	require.NoError(t, err)
	moving := &movingStreams{Streams: scripts}
	server, err := api.New(api.Config{}, api.Deps{
		Claimer: scripts, States: scripts, Hydrator: l.d, Campaigns: l.d, Claims: l.d, Resolver: l.d, Audit: l.d.Audit, Groups: l.d.Groups, Ledger: apitest.Ledger{}, Streams: moving,
		Ready: func(context.Context) error { return nil },
	})
	require.NoError(t, err)
	for _, path := range []func(c models.Claim) string{
		func(c models.Claim) string { return "/v1/claims/" + c.ID },
		func(c models.Claim) string { return "/v1/users/" + c.UserID + "/claims" },
	} {
		c, _ := l.claim("u" + uuid.NewString())
		moving.before = func() { l.sync(l.take(1)) }
		w := apitest.Ask(apitest.AtHome(server.Handler()), "GET", path(c), "")
		require.Equal(t, 200, w.Code, w.Body)
		require.Contains(t, w.Body.String(), c.ID)
	}
}

// movingStreams has something happen just before a stream is looked at, once.
type movingStreams struct {
	claimed.Streams

	before func()
}

func (m *movingStreams) Unread(ctx context.Context, p int, group string) (lua.Unread, error) {
	if m.before != nil {
		m.before()
		m.before = nil
	}
	return m.Streams.Unread(ctx, p, group)
}

func TestLookup_WithoutMySQLWhatIsUnsyncedIsFoundAndTheRestUnknown(t *testing.T) {
	t.Parallel()
	l := newLookups(t)
	h := l.other()
	first, _ := l.claim("u")
	second, _ := l.claim("u")
	l.sync(l.take(1))
	l.booksAway(errors.New("away"))
	require.Equal(t, 200, statusOf(h, second.ID))
	for _, path := range []string{"/v1/claims/" + first.ID, "/v1/claims/" + uuid.NewString(), "/v1/users/u/claims"} {
		w := apitest.Ask(h, "GET", path, "")
		apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable")
		require.Equal(t, "1", w.Header().Get("Retry-After"))
	}
	l.booksAway(nil)
	require.Equal(t, 200, statusOf(h, first.ID))
	require.Equal(t, 404, statusOf(h, uuid.NewString()))
}

func TestLookup_BeyondItsBoundUnknownIsNotNotFound(t *testing.T) {
	t.Parallel()
	l := newLookups(t)
	reg := prometheus.NewRegistry()
	routes := l.routes(reg)
	routes.KeepInMemory(3, time.Minute)
	h := lookUpBy(routes)
	var claims []models.Claim
	for range 5 {
		c, _ := l.claim("u")
		claims = append(claims, c)
	}
	codes := func() (all []int) {
		for _, c := range claims {
			all = append(all, statusOf(h, c.ID))
		}
		return append(all, statusOf(h, uuid.NewString()), apitest.Ask(h, "GET", "/v1/users/u/claims", "").Code, apitest.Ask(h, "GET", "/v1/users/v/claims", "").Code)
	}
	require.Equal(t, []int{200, 200, 200, 503, 503, 503, 503, 503}, codes())
	require.EqualValues(t, 3, gauge(t, reg))
	l.sync(l.take(1))
	require.Equal(t, []int{200, 200, 200, 200, 503, 503, 503, 503}, codes())
	l.sync(l.take(1))
	require.Equal(t, []int{200, 200, 200, 200, 200, 404, 200, 200}, codes())
	l.sync(l.take(3))
	require.Equal(t, []int{200, 200, 200, 200, 200, 404, 200, 200}, codes())
	require.Zero(t, gauge(t, reg))
}

func gauge(t testing.TB, reg *prometheus.Registry) float64 {
	t.Helper()
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range all {
		if f.GetName() == "dibs_lookup_unsynced_claims" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.FailNow(t, "no gauge")
	return 0
}

func TestLookup_TheIndexIsLetGoWhenNobodyLooks(t *testing.T) {
	t.Parallel()
	l := newLookups(t)
	reg := prometheus.NewRegistry()
	routes := l.routes(reg)
	routes.KeepInMemory(1000, 20*time.Millisecond)
	h := lookUpBy(routes)
	c, _ := l.claim("u")
	for range 2 {
		require.Equal(t, 200, statusOf(h, c.ID))
		require.Eventually(t, func() bool { return gauge(t, reg) == 0 }, time.Minute, 5*time.Millisecond)
	}
	require.Equal(t, 1, testutil.CollectAndCount(reg, "dibs_lookup_unsynced_claims"))
}

// A Redis that lost claims, or all, is not outlived by what a process remembers of it.
func TestLookup_WhatRedisLostIsNotShownFromMemory(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(l *lookups, last string) error{
		"all":      func(l *lookups, _ string) error { return l.rdb.Del(l.t.Context(), lua.StreamKey(0)).Err() },
		"the tail": func(l *lookups, last string) error { return l.rdb.XDel(l.t.Context(), lua.StreamKey(0), last).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLookups(t)
			l.t = t
			h := l.other()
			kept, _ := l.claim("u")
			lost, _ := l.claim("u")
			require.Equal(t, []int{200, 200}, []int{statusOf(h, kept.ID), statusOf(h, lost.ID)})
			entries, err := l.rdb.XRevRange(t.Context(), lua.StreamKey(0), "+", "-").Result()
			require.NoError(t, err)
			require.NoError(t, lose(l, entries[0].ID))
			after, _ := l.claim("u")
			require.Equal(t, []int{404, 200}, []int{statusOf(h, lost.ID), statusOf(h, after.ID)})
			require.Equal(t, name == "the tail", statusOf(h, kept.ID) == 200)
		})
	}
}

func TestLookup_RedisAwayIsUnknown(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	d := &apitest.Definitions{Fake: apitest.NewFake(), Loaded: map[string]bool{}}
	h := apitest.RealServer(t, d, server.URL(), api.Config{})
	synced := d.Put(apitest.Coupon("c", 5)).Take(&lua.ClaimRequest{ID: uuid.New(), UserID: "u", Quantity: 1}).Claim
	server.Kill()
	require.Equal(t, []int{200, 503}, []int{statusOf(h, synced.ID), statusOf(h, uuid.NewString())})
}

func TestLookup_IdsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c", 1)), api.Config{})
	for path, field := range map[string]string{
		"/v1/claims/a%20b": "id", "/v1/claims/a%2Fb": "id", "/v1/claims/" + string(slices.Repeat([]byte("x"), 65)): "id",
		"/v1/users/%00/claims": "user_id", "/v1/users/%2E/claims": "user_id", "/v1/users/%2E%2E/claims": "user_id", "/v1/users/u%20/claims": "user_id",
		"/v1/users/u%EF%B8%8F/claims": "user_id",
		"/v1/users/%ff/claims":        "user_id", "/v1/users/" + string(slices.Repeat([]byte("x"), 129)) + "/claims": "user_id",
		"/v1/users/u/claims?campaign_id=a%20b": "campaign_id", "/v1/users/u/claims?limit=0": "limit", "/v1/users/u/claims?limit=1001": "limit",
		"/v1/users/u/claims?cursor=x": "cursor", "/v1/users/u/claims?cursor=-1.a": "cursor", "/v1/users/u/claims?cursor=5.a%20b": "cursor",
		"/v1/users/u/claims?cursor=99999999999999999999.a": "cursor",
	} {
		w := apitest.Ask(h, "GET", path, "")
		apitest.RequireProblem(t, 422, w.Header(), w.Body.Bytes(), "invalid")
		require.Contains(t, w.Body.String(), `"field":"`+field+`"`, path)
	}
	require.JSONEq(t, `{"claims":[]}`, apitest.Ask(h, "GET", "/v1/users/nobody/claims", "").Body.String())
}

func TestLookup_UsersAreWhateverTheyAre(t *testing.T) {
	t.Parallel()
	l := newLookups(t)
	for _, user := range []string{"a/b", "/a", "/", "//", "...", "a b", "100%", "%2F", "?", "#x", "a+b", "Zoë", "😀", `"\`, "a;b", "claims", "a:b@c"} {
		c, _ := l.claim(user)
		var got struct{ Claims []models.Claim }
		path := "/v1/users/" + url.PathEscape(user) + "/claims"
		w := apitest.Ask(l.h, "GET", path, "")
		require.Equal(t, 200, w.Code, "%s %s", path, w.Body)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.Len(t, got.Claims, 1, user)
		require.Equal(t, c, got.Claims[0])
	}
	require.Equal(t, 200, apitest.Ask(l.h, "GET", "/v1/users/%2f/claims?campaign_id=none", "").Code)
	require.Equal(t, 404, apitest.Ask(l.h, "GET", "/v1/users/%2F", "").Code)
	require.Equal(t, 404, apitest.Ask(l.h, "GET", "/v1/users///claims", "").Code)
}

func TestLookup_ScopesAreThoseOfReaders(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(), api.Config{Tokens: api.Tokens{Admin: "a", Storefront: "s", Viewer: "v"}})
	for token, want := range map[string]int{"a": 200, "s": 200, "v": 200, "x": 401} {
		require.Equal(t, want, apitest.Ask(h, "GET", "/v1/users/u/claims", "", "Authorization: Bearer "+token).Code, token)
	}
	for token, want := range map[string]int{"a": 404, "s": 404, "v": 404, "": 401} {
		require.Equal(t, want, apitest.Ask(h, "GET", "/v1/claims/x", "", "Authorization: Bearer "+token).Code, token)
	}
}
