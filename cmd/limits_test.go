package cmd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/models"
)

type refusedBy struct {
	Code, Field, By string
	Per             models.Per
	Max             int64
	ResetsAt        string `json:"resets_at"`
}

func (r *running) claimFor(campaign, user string, subjects map[string]string) answer {
	r.t.Helper()
	if subjects == nil {
		subjects = map[string]string{}
	}
	body, err := json.Marshal(map[string]any{"user_id": user, "subjects": subjects})
	require.NoError(r.t, err)
	return call(r.t, http.MethodPost, r.url+"/v1/campaigns/"+campaign+"/claims", string(body))
}

func (r *running) refused(campaign, user string, subjects map[string]string) (p refusedBy) {
	r.t.Helper()
	got := r.claimFor(campaign, user, subjects)
	require.NotEqual(r.t, http.StatusCreated, got.status, got.body)
	got.into(r.t, &p)
	return p
}

func (r *running) patch(campaign, body string) (c models.CampaignJSON) {
	r.t.Helper()
	got := call(r.t, http.MethodPatch, r.url+"/v1/campaigns/"+campaign, body)
	require.Equal(r.t, http.StatusOK, got.status, got.body)
	got.into(r.t, &c)
	return c
}

func device(value string) map[string]string { return map[string]string{"device": value} }

// A device's limit must hold for all users, through a change of the limits, a
// release, and a loss of Redis. Rows and events must have the device.
func TestLimitsOfADevice(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":100,"per_user":9,"limits":[{"by":"device","per":"week","max":2}]}`)
	require.Equal(t, refusedBy{Code: "invalid", Field: "subjects.device"}, serve.refused("spring", "ada", nil))
	var first struct{ ID string }
	got := serve.claimFor("spring", "ada", device("d 1"))
	require.Equal(t, http.StatusCreated, got.status, got.body)
	got.into(t, &first)
	require.Equal(t, http.StatusCreated, serve.claimFor("spring", "bob", device("d 1")).status)
	no := serve.refused("spring", "eve", device("d 1"))
	at, err := time.Parse(time.RFC3339, no.ResetsAt)
	require.NoError(t, err)
	require.Equal(t, time.Monday, at.Weekday())
	no.ResetsAt = ""
	require.Equal(t, refusedBy{Code: "limit", By: "device", Per: models.PerWeek, Max: 2}, no)
	batch := serve.post("/claims:batch", `{"claims":[{"campaign_id":"spring","user_id":"eve","subjects":{"device":"d 1"}},{"campaign_id":"spring","user_id":"eve"}]}`)
	require.Contains(t, batch.body, `"by":"device","per":"week","max":2`)
	require.Contains(t, batch.body, `"field":"subjects.device"`)

	// One limit stays. The new one counts from now on.
	c := serve.patch("spring", `{"per_user":8,"limits":[{"by":"device","per":"week","max":3},{"by":"device","per":"all","max":1}]}`)
	require.Equal(t, int64(8), c.PerUser)
	require.Len(t, c.Limits, 3)
	require.Nil(t, c.Limits[0].CountedFrom)
	require.Equal(t, []any{models.PerAll, models.PerWeek}, []any{c.Limits[1].Per, c.Limits[2].Per})
	require.NotNil(t, c.Limits[1].CountedFrom)
	require.Nil(t, c.Limits[2].CountedFrom)
	require.Equal(t, http.StatusCreated, serve.claimFor("spring", "eve", device("d 1")).status, "the third of the week, the first of all")
	no = serve.refused("spring", "eve", device("d 1"))
	require.Contains(t, []models.Per{models.PerAll, models.PerWeek}, no.Per)
	serve.synced("spring", 3)
	serve.post("/claims/"+first.ID+"/release", `{}`)
	no = serve.refused("spring", "eve", device("d 1"))
	require.Equal(t, refusedBy{Code: "limit", By: "device", Per: models.PerAll, Max: 1}, no, "the week's quota came back, that of all did not count it")
	serve.synced("spring", 2)
	require.Equal(t, int64(3), s.number(`SELECT COUNT(*) FROM claims WHERE subjects = '{"device":"d 1"}'`))
	entries, err := s.rdb.XRange(t.Context(), "dibs:{p0}:claims", "-", "+").Result()
	require.NoError(t, err)
	events := fmt.Sprint(entries)
	require.Equal(t, 4, strings.Count(events, `"subjects":{"device":"d 1"}`), "three claims and a release: %s", events)
	requireOK(t, run(t, s.environ, "reconcile"))
	require.Equal(t, cmd.ExitOK, serve.stop().code)

	// Redis loses all counts. They are restored from MySQL.
	keys, err := s.rdb.Keys(t.Context(), "*spring:users").Result()
	require.NoError(t, err)
	held, err := s.rdb.HGet(t.Context(), keys[0], "device\nd 1").Result()
	require.NoError(t, err)
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err()) //nolint:forbidigo // a server of its own
	serve = start(t, s.environ, "serve")
	eventually(t, "it takes no claims again", func() bool {
		return serve.claimFor("spring", "another", device("d 2")).status == http.StatusCreated
	})
	again, err := s.rdb.HGet(t.Context(), keys[0], "device\nd 1").Result()
	require.NoError(t, err)
	require.Equal(t, held, again)
}

// With a secret, neither Redis nor MySQL nor the stream may hold the
// original values. A process with another secret must not start.
func TestSubjectsAreStoredAsDigests(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	secret := "DIBS_SUBJECT_SECRET=one"
	serve := start(t, s.with(secret), "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":100,"limits":[{"by":"email","per":"all","max":1}]}`)
	mail := map[string]string{"email": "ada@example.com"}
	require.Equal(t, http.StatusCreated, serve.claimFor("spring", "ada", mail).status)
	require.Equal(t, "limit", serve.refused("spring", "bob", mail).Code)
	serve.synced("spring", 1)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
	require.Zero(t, s.number(`SELECT COUNT(*) FROM claims WHERE subjects LIKE '%example%'`))
	require.Equal(t, int64(1), s.number(`SELECT COUNT(*) FROM claims WHERE subjects LIKE '{"email":"________________________"}'`))
	for _, environ := range [][]string{s.environ, s.with("DIBS_SUBJECT_SECRET=two")} {
		got := run(t, environ, "serve")
		require.Equal(t, cmd.ExitUsage, got.code, got.stderr)
		require.Contains(t, got.stderr, "DIBS_SUBJECT_SECRET")
	}
	serve = start(t, s.with(secret), "serve")
	require.Equal(t, "limit", serve.refused("spring", "bob", mail).Code)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
}

// A sharded campaign's limits must all be by the subject that selects
// the shard.
func TestShardsByADevice(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	for body, field := range map[string]string{
		`"shards":4,"limits":[{"by":"device","per":"all","max":1}]`:                               "limits",
		`"shards":4,"shard_by":"device","per_user":1`:                                             "limits",
		`"shard_by":"device"`:                                                                     "shard_by",
		`"shards":4,"shard_by":"Device"`:                                                          "shard_by",
		`"limits":[{"by":"device","per":"all","max":1},{"by":"device","per":"all","max":2}]`:      "limits",
		`"per_user":1,"limits":[{"by":"user","per":"all","max":2}]`:                               "per_user",
		`"limits":[{"by":"device","per":"year","max":1}]`:                                         "limits[0].per",
		`"limits":[{"by":"device","per":"day","max":0}]`:                                          "limits[0].max",
		`"limits":[{"per":"day","max":1}]`:                                                        "limits[0].by",
		`"limits":[` + strings.Repeat(`{"by":"user","per":"day","max":1},`, 8) + `{"by":"user"}]`: "limits",
	} {
		var p refusedBy
		got := call(t, http.MethodPost, serve.url+"/v1/campaigns", `{"id":"no","kind":"coupon","total":9,`+body+`}`)
		got.into(t, &p)
		require.Equal(t, []any{422, field}, []any{got.status, p.Field}, "%s: %s", body, got.body)
	}
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":100,"shards":4,"shard_by":"device","limits":[{"by":"device","per":"day","max":1}]}`)
	require.Equal(t, "subjects.device", serve.refused("spring", "ada", nil).Field)
	for n := range 12 {
		name := fmt.Sprint("d", n)
		require.Equal(t, http.StatusCreated, serve.claimFor("spring", "ada", device(name)).status, "a user has many devices")
		require.Equal(t, "limit", serve.refused("spring", fmt.Sprint("u", n), device(name)).Code)
	}
	body := `{"user_id":"eve","subjects":{"device":"x1"}}`
	one := serve.post("/campaigns/spring/claims", body, "Idempotency-Key: k")
	require.JSONEq(t, one.body, serve.post("/campaigns/spring/claims", body, "Idempotency-Key: k").body)
	other := serve.post("/campaigns/spring/claims", strings.Replace(body, "x1", "x2", 1), "Idempotency-Key: k")
	require.NotEqual(t, one.body, other.body, "a key is of the user and the device")
	serve.synced("spring", 14)
	require.Greater(t, s.number("SELECT COUNT(DISTINCT shard) FROM claims"), int64(1))
	require.Equal(t, cmd.ExitOK, serve.stop().code)
	requireOK(t, run(t, s.environ, "reconcile"))
}

// Limits are created, replaced and removed from the command line.
func TestLimitsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	serve := start(t, nil, "serve")
	environ := []string{"DIBS_URL=" + serve.url}
	requireOK(t, run(t, environ, "campaign", "create", "spring", "--total", "9", "--per-user", "2", "--limit", "device:day:1", "--limit", "user:hour:2"))
	limits := func() (all []string) {
		var c models.CampaignJSON
		serve.get("/v1/campaigns/spring").into(t, &c)
		for _, l := range c.Limits {
			all = append(all, l.String())
		}
		return all
	}
	require.Equal(t, []string{"user:all:2", "device:day:1", "user:hour:2"}, limits())
	requireOK(t, run(t, environ, "claim", "spring", "--user", "ada", "--subject", "device=d1"))
	got := run(t, environ, "claim", "spring", "--user", "bob", "--subject", "device=d1")
	require.Equal(t, cmd.ExitFailed, got.code)
	require.Contains(t, got.stderr, "limit")
	requireOK(t, run(t, environ, "campaign", "set", "spring", "--limit", "device:week:3"))
	require.Equal(t, []string{"device:week:3"}, limits())
	requireOK(t, run(t, environ, "campaign", "set", "spring", "--limit", "none"))
	require.Empty(t, limits())
	require.Equal(t, cmd.ExitUsage, run(t, environ, "campaign", "set", "spring", "--limit", "device:day").code)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
}
