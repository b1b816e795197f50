package cmd_test

import (
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
	body := map[string]any{"user_id": user}
	if subjects != nil {
		body["subjects"] = subjects
	}
	return call(r.t, http.MethodPost, r.url+"/v1/campaigns/"+campaign+"/claims", jsonOf(r.t, body))
}

func (r *running) refused(campaign, user string, subjects map[string]string) (p refusedBy) {
	r.t.Helper()
	got := r.claimFor(campaign, user, subjects)
	require.NotEqual(r.t, http.StatusCreated, got.status, got.body)
	got.into(r.t, &p)
	return p
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
	serve.claimFor("spring", "ada", device("d 1")).into(t, &first)
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
	var c models.CampaignJSON
	call(t, http.MethodPatch, serve.url+"/v1/campaigns/spring",
		`{"per_user":8,"limits":[{"by":"device","per":"week","max":3},{"by":"device","per":"all","max":1}]}`).into(t, &c)
	require.Equal(t, int64(8), c.PerUser)
	require.Len(t, c.Limits, 3)
	require.NotNil(t, c.Limits[1].CountedFrom)
	require.Nil(t, c.Limits[2].CountedFrom)
	require.Equal(t, http.StatusCreated, serve.claimFor("spring", "eve", device("d 1")).status, "the third of the week, the first of all")
	serve.synced("spring", 3)
	serve.post("/claims/"+first.ID+"/release", `{}`)
	no = serve.refused("spring", "eve", device("d 1"))
	require.Equal(t, refusedBy{Code: "limit", By: "device", Per: models.PerAll, Max: 1}, no, "the week's quota came back, that of all did not count it")
	serve.synced("spring", 2)
	require.Equal(t, int64(3), s.number(`SELECT COUNT(*) FROM claims WHERE subjects = '{"device":"d 1"}'`))
	entries, err := s.rdb.XRange(t.Context(), claims, "-", "+").Result()
	require.NoError(t, err)
	require.Equal(t, 4, strings.Count(fmt.Sprint(entries), `"subjects":{"device":"d 1"}`), "three claims and a release")
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
		requireRefusal(t, run(t, environ, "serve"), cmd.ExitUsage, "DIBS_SUBJECT_SECRET")
	}
}

// A sharded campaign's limits must all be by the subject that selects
// the shard.
func TestShardsByADevice(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	got := call(t, http.MethodPost, serve.url+"/v1/campaigns",
		`{"id":"no","kind":"coupon","total":9,"shards":4,"shard_by":"device","per_user":1}`)
	require.Equal(t, http.StatusUnprocessableEntity, got.status)
	require.Contains(t, got.body, `"field":"limits"`)
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
