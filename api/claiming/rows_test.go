package claiming_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claiming"
	"dibs/api/wire"
	"dibs/internal/apitest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// table is a MySQL that gets rows when a test says so.
type table struct {
	mu       sync.Mutex
	scripts  *lua.Scripts
	rdb      redis.UniversalClient
	has      map[string]bool
	applied  int // counts commits
	isAway   bool
	isFast   bool  // it has the row of each claim that is in the stream
	isSilent bool  // nobody signals
	asked    []int // ids of each question
}

func (m *table) Committed(ctx context.Context, ids []string) (there []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, len(ids))
	if m.isAway {
		return nil, errors.New("mysql is away")
	}
	if m.isFast {
		m.read(ctx)
	}
	for _, id := range ids {
		if m.has[id] {
			there = append(there, id)
		}
	}
	return there, nil
}

func (m *table) Signaled(_ context.Context, partitions []int) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isSilent {
		return make([]string, len(partitions))
	}
	m.applied += map[bool]int{true: 1}[m.isFast]
	return []string{fmt.Sprint(m.applied)}
}

// commit has the rows of all claims that are in the stream.
func (m *table) commit(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied++
	m.read(ctx)
}

func (m *table) read(ctx context.Context) {
	entries, _ := m.rdb.XRange(ctx, lua.StreamKey(0), "-", "+").Result()
	for _, e := range entries {
		id, _ := e.Values["_watermill_message_uuid"].(string)
		m.has[id] = true
	}
}

func (m *table) set(change func(m *table)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *table) questions() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]int(nil), m.asked...)
}

// shop is an API in mode mysql over a Redis and a table.
type shop struct {
	*table
	h http.Handler
}

func newShop(t *testing.T) *shop {
	t.Helper()
	rdb := testenv.Redis(t).Client()
	scripts, err := lua.New(rdb, lua.Options{Durability: lua.MySQL})
	require.NoError(t, err)
	room := apitest.NewFake()
	room.Put(models.Campaign{ID: "spring", Total: 100_000, Version: 1})
	w := &watchful{Definitions: &apitest.Definitions{Fake: room, Scripts: scripts, Loaded: map[string]bool{}}}
	s := &shop{table: &table{scripts: scripts, rdb: rdb, has: map[string]bool{}}}
	s.h = s.process(t, w)
	return s
}

func (s *shop) process(t *testing.T, w *watchful) http.Handler {
	t.Helper()
	reg := prometheus.NewRegistry()
	server, err := api.New(api.Config{Logger: slog.New(slog.DiscardHandler), Registerer: reg, Gatherer: reg}, api.Deps{
		Claimer: s.scripts, States: s.scripts, Shared: w, Loader: w, Campaigns: w, Claims: w, Resolver: w, Audit: w.Audit, Groups: w.Groups,
		Ledger: apitest.Ledger{}, Applied: w, Rows: s.table, Ready: func(context.Context) error { return nil },
	})
	require.NoError(t, err)
	return apitest.AtHome(server.Handler())
}

func (s *shop) post(t *testing.T, path, body, key string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	s.h.ServeHTTP(rec, req)
	return rec
}

func (s *shop) claim(t *testing.T, user, key string) *httptest.ResponseRecorder {
	t.Helper()
	return s.post(t, "/v1/campaigns/spring/claims", `{"user_id":"`+user+`"}`, key)
}

// A yes is told once MySQL has the row, and not before.
func TestRows_AYesWaitsForItsRow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() { answered <- s.claim(t, "ada", "") }()
	require.Eventually(t, func() bool { return len(s.questions()) > 0 }, time.Minute, time.Millisecond, "it asks without a signal, too")
	select {
	case got := <-answered:
		require.Fail(t, "told before MySQL has it", got.Body)
	default:
	}
	s.commit(t.Context())
	got := <-answered
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	require.Equal(t, http.StatusConflict, s.post(t, "/v1/campaigns/spring/claims", `{"user_id":"bob","quantity":100000}`, "").Code, "a no waits for nothing")
}

// While MySQL is away or late the outcome is unknown. The same key gets the answer later.
func TestRows_TheOutcomeIsUnknownUntilMySQLAnswers(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(m *table){
		"away": func(m *table) { m.isAway = true; m.has = map[string]bool{} },
		"late": func(*table) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.set(trouble)
			for range 2 {
				got := s.claim(t, "ada", "key")
				apitest.RequireProblem(t, got.Code, got.Header(), got.Body.Bytes(), "outcome_unknown")
				require.NotEmpty(t, got.Header().Get("Retry-After"))
			}
			s.set(func(m *table) { m.isAway = false; m.isFast = true })
			got := s.claim(t, "ada", "key")
			require.Equal(t, http.StatusCreated, got.Code, got.Body)
			require.Equal(t, "true", got.Header().Get("Idempotent-Replayed"))
			state, err := s.scripts.State(t.Context(), "spring")
			require.NoError(t, err)
			require.Equal(t, int64(1), state.Seq, "it is one claim")
		})
	}
}

// The claims of a batch wait together, and each is answered by its own row.
func TestRows_OfABatch(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.set(func(m *table) { m.isFast = true })
	require.Equal(t, http.StatusCreated, s.claim(t, "old", "known").Code)
	s.set(func(m *table) { m.isFast = false })
	got := s.post(t, "/v1/claims:batch", `{"claims":[{"campaign_id":"spring","user_id":"old","idempotency_key":"known"},`+
		`{"campaign_id":"spring","user_id":"new"},{"campaign_id":"spring","user_id":"much","quantity":200000}]}`, "")
	require.Equal(t, http.StatusOK, got.Code)
	body := got.Body.String()
	require.Contains(t, body, `"status":201`)
	require.Contains(t, body, "outcome_unknown")
	require.Contains(t, body, "claim_id", "without a key the claim is named")
	require.Contains(t, body, "sold_out")
}

// One question serves all claims of a process that a flush committed.
func TestRows_OneQuestionServesEveryClaimOfAFlush(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const claims = 300
	codes := make(chan int, claims)
	for i := range claims {
		go func() { codes <- s.claim(t, fmt.Sprint("user-", i), "").Code }()
	}
	require.Eventually(t, func() bool { return s.rdb.XLen(t.Context(), lua.StreamKey(0)).Val() == 1+claims }, time.Minute, time.Millisecond)
	before := len(s.questions())
	s.commit(t.Context())
	for range claims {
		require.Equal(t, http.StatusCreated, <-codes)
	}
	asked := s.questions()
	require.LessOrEqual(t, len(asked)-before, 3, "but for claims that were not held yet: %v", asked)
}

// A process has seen only what it answered: when Redis is restored to before a claim whose outcome is unknown, nothing is missing.
func TestRows_WhatWasNotAnsweredIsNotMissing(t *testing.T) {
	t.Parallel()
	for name, isAnswered := range map[string]bool{"answered": true, "not answered": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.set(func(m *table) { m.isFast = true })
			require.Equal(t, http.StatusCreated, s.claim(t, "a", "").Code)
			key := lua.KeysOf("spring", 0).State
			before, err := s.rdb.HGetAll(t.Context(), key).Result()
			require.NoError(t, err)
			s.set(func(m *table) { m.isFast = isAnswered })
			require.Equal(t, isAnswered, s.claim(t, "b", "").Code == http.StatusCreated)
			require.NoError(t, s.rdb.HSet(t.Context(), key, before).Err()) // Redis is restored to before b
			s.set(func(m *table) { m.isFast = true })
			require.Equal(t, !isAnswered, s.claim(t, "c", "").Code == http.StatusCreated)
		})
	}
}

// A claim that could not be waited for is not sent.
func TestRows_TooManyWait(t *testing.T) {
	t.Parallel()
	require.Equal(t, wire.CodeUnavailable, claiming.RefusedWhileRowsAreFull(&table{}))
}
