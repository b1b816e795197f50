package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"dibs/internal/crowd"
	"dibs/internal/redisconn"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// setup configures a test's system. The zero value is one Redis
// without persistence, a database on the shared SQL server, one
// process of each role and a finance service as a reader.
type setup struct {
	redisConf  []string // additional lines of redis.conf
	masters    int      // of a Redis Cluster instead; 0 is none
	replicated bool     // with a replica each
	ownSQL     bool     // the test's own SQL server, to kill and pause
	noSchema   bool     // the database is empty
	partitions int      // 0 is 1
	apis       int      // processes; 0 is 1
	consumers  int
	settings   map[string]string       // additional settings of every process
	apiRedis   func(url string) string // how the API processes reach Redis
}

// servers are a Redis and a database with Dibs' schema, and access to them.
type servers struct {
	redis      *testenv.RedisServer // nil for a cluster
	cluster    *testenv.ReplicatedCluster
	sql        *testenv.MySQLServer // nil for the shared one
	redisURL   string
	dsn        string
	partitions int

	rdb     redis.UniversalClient
	scripts *lua.Scripts
	db      *sql.DB
}

type system struct {
	servers
	t         *testing.T
	settings  map[string]string
	apis      []*process
	consumers []*process
	syncer    *process
	finance   *reader
}

func newServers(t *testing.T, w setup) servers {
	t.Helper()
	s := servers{partitions: max(w.partitions, 1)}
	switch {
	case w.replicated:
		s.cluster = testenv.RedisReplicatedCluster(t, w.masters, 1500*time.Millisecond, w.redisConf...)
		s.redisURL = s.cluster.URL()
	case w.masters > 0:
		s.redisURL = "redis://" + strings.Join(testenv.RedisCluster(t, w.masters), ",")
	default:
		s.redis = testenv.Redis(t, w.redisConf...)
		s.redisURL = s.redis.URL()
	}
	if w.ownSQL {
		s.sql = testenv.SQLServer(t)
		s.dsn = s.sql.DSN("dibs")
	} else {
		s.dsn = testenv.Database(t).DSN
	}
	rdb, err := redisconn.Connect(s.redisURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	scripts, err := lua.New(rdb, lua.Options{Partitions: s.partitions})
	require.NoError(t, err)
	db, err := sqlstore.Open(t.Context(), sqlstore.Config{DSN: s.dsn, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
	pool, err := db.DB()
	require.NoError(t, err)
	if !w.noSchema {
		syncertest.Migrate(t, db)
	}
	s.rdb, s.scripts, s.db = rdb, scripts, pool
	return s
}

func newSystem(t *testing.T, w setup) *system {
	t.Helper()
	binary(t) // before servers wait for it
	s := &system{servers: newServers(t, w), t: t, settings: map[string]string{
		"DIBS_PARTITIONS": fmt.Sprint(max(w.partitions, 1)), "DIBS_STREAM_KEEP": "0s",
	}}
	s.settings["DIBS_REDIS_URL"], s.settings["DIBS_MYSQL_DSN"] = s.redisURL, s.dsn
	maps.Copy(s.settings, w.settings)
	s.finance = readAlong(t, s.rdb, "finance", s.partitions)
	for range max(w.consumers, 1) {
		s.consumers = append(s.consumers, s.launch("consumer", fmt.Sprintf("consumer-%d", len(s.consumers))))
	}
	s.syncer = s.launch("syncer", "")
	if w.apiRedis != nil {
		s.settings["DIBS_REDIS_URL"] = w.apiRedis(s.redisURL)
	}
	for range max(w.apis, 1) {
		s.apis = append(s.apis, s.launch("api", ""))
	}
	return s
}

// launch starts another process of a role.
func (s *system) launch(command, name string) *process {
	s.t.Helper()
	settings := maps.Clone(s.settings)
	if name != "" {
		settings["DIBS_NAME"] = name
	}
	return newProcess(s.t, command, settings)
}

func (s *system) urls() []string {
	var all []string
	for _, api := range s.apis {
		all = append(all, api.url)
	}
	return all
}

// campaign is the JSON of POST /v1/campaigns.
type campaign struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Total   int64  `json:"total"`
	PerUser int64  `json:"per_user,omitempty"`
	HoldFor string `json:"hold_for,omitempty"`
}

func openCampaign(t testing.TB, url string, c campaign) campaign {
	t.Helper()
	c.ID, c.Kind = orID(t, c.ID), "coupon"
	got := call(t, http.MethodPost, url+"/v1/campaigns", "", c)
	require.Equal(t, http.StatusCreated, got.status, got.body)
	return c
}

func orID(t testing.TB, id string) string {
	if id == "" {
		return testenv.UniqueID(t, "rush")
	}
	return id
}

type reply struct {
	status int
	header http.Header
	body   string
	err    error // no reply
}

func (r reply) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(r.body), &p) // a claim has none
	return p.Code
}

func (r reply) claim(t testing.TB) models.Claim {
	t.Helper()
	var c models.Claim
	require.NoError(t, json.Unmarshal([]byte(r.body), &c), r.body)
	return c
}

// client allows parallel requests and reuses no connection, so
// that calls reach a restarted process.
var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func call(t testing.TB, method, url, key string, body any) reply {
	t.Helper()
	return callOn(t, client, method, url, key, body)
}

func callOn(t testing.TB, client *http.Client, method, url, key string, body any) reply {
	t.Helper()
	encoded, err := json.Marshal(body)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, bytes.NewReader(encoded))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: string(text), err: err}
}

// claimOnce claims units once.
func claimOnce(t testing.TB, url, campaignID, user string, quantity int64, key string) reply {
	t.Helper()
	return call(t, http.MethodPost, url+"/v1/campaigns/"+campaignID+"/claims", key, map[string]any{"user_id": user, "quantity": quantity})
}

// claimUntilAnswered retries with the same key until the outcome is known.
func claimUntilAnswered(t testing.TB, url, campaignID, user string, quantity int64, key string) reply {
	t.Helper()
	deadline := time.Now().Add(upTimeout)
	for {
		got := claimOnce(t, url, campaignID, user, quantity, key)
		if got.err == nil && got.status != http.StatusServiceUnavailable {
			return got
		}
		require.True(t, time.Now().Before(deadline), "no answer: %v %s", got.err, got.body)
		<-time.After(pollEvery)
	}
}

func stockOf(ctx context.Context, url, campaignID string) (models.Stock, error) {
	var stock models.Stock
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/campaigns/"+campaignID+"/stock", nil)
	if err != nil {
		return stock, err
	}
	res, err := client.Do(req)
	if err != nil {
		return stock, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &stock)
	}
	return stock, err
}

// rush is a crowd running beside the test.
type rush struct {
	t        testing.TB
	plan     crowd.Plan
	cancel   context.CancelFunc
	progress chan int // the latest number of answered users
	done     chan struct{}
	tally    crowd.Tally
	err      error
}

// startRush starts a crowd; wait returns its tally.
func startRush(t testing.TB, p crowd.Plan) *rush {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &rush{t: t, plan: p, cancel: cancel, progress: make(chan int, 1), done: make(chan struct{})}
	p.Progress = func(answered int) {
		select {
		case <-r.progress:
		default:
		}
		select {
		case r.progress <- answered:
		default:
		}
	}
	p.Attempts, p.Pause = 2000, 20*time.Millisecond // faults last
	go func() {
		defer close(r.done)
		r.tally, r.err = crowd.Run(ctx, p)
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	return r
}

// reaches waits until that many users were answered.
func (r *rush) reaches(users int) {
	r.t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		select {
		case n := <-r.progress:
			if n >= users {
				return
			}
		case <-r.done:
			require.NoError(r.t, r.err)
			return
		case <-timeout:
			require.FailNow(r.t, "the crowd is stuck", "short of %d answers", users)
		}
	}
}

func (r *rush) wait() crowd.Tally {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(time.Duration(testenv.Pick(5, 15)) * time.Minute):
		require.FailNow(r.t, "the crowd does not come to an end")
	}
	require.NoError(r.t, r.err)
	return r.tally
}
