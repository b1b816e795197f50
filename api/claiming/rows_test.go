package claiming_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claiming"
	"dibs/api/wire"
	"dibs/internal/testkit/apitest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

// table is a MySQL that gets rows when a test says so.
type table struct {
	mu      sync.Mutex
	scripts *lua.Scripts
	rdb     redis.UniversalClient
	has     map[string]bool
	applied int // counts commits
	isAway  bool
	isFast  bool // has the row of each claim in the stream at once
	asked   int  // queries
}

func (m *table) Committed(ctx context.Context, ids []string) (there []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
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

func (m *table) Signaled(context.Context, []int) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied += map[bool]int{true: 1}[m.isFast]
	return []string{fmt.Sprint(m.applied)}
}

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
	fake := apitest.NewFake()
	fake.Put(models.Campaign{ID: "spring", Total: 100_000, Version: 1})
	w := &watchful{Definitions: &apitest.Definitions{Fake: fake, Scripts: scripts, Loaded: map[string]bool{}}}
	s := &shop{table: &table{scripts: scripts, rdb: rdb, has: map[string]bool{}}}
	s.h = apitest.AtHome(realServer(t, w.Definitions, func(deps *api.Deps) { deps.Loader, deps.Rows = w, s.table }).Handler())
	return s
}

func (s *shop) claim(user string, headers ...string) *httptest.ResponseRecorder {
	return apitest.Ask(s.h, http.MethodPost, "/v1/campaigns/spring/claims", `{"user_id":"`+user+`"}`, headers...)
}

func TestRows_AYesWaitsForItsRow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() { answered <- s.claim("ada") }()
	asked := 0
	require.Eventually(t, func() bool {
		s.set(func(m *table) { asked = m.asked })
		return asked > 0
	}, time.Minute, time.Millisecond, "it asks without a signal, too")
	select {
	case got := <-answered:
		require.Fail(t, "answered before MySQL has it", got.Body)
	default:
	}
	s.commit(t.Context())
	got := <-answered
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	no := apitest.Ask(s.h, http.MethodPost, "/v1/campaigns/spring/claims", `{"user_id":"bob","quantity":100000}`)
	require.Equal(t, http.StatusConflict, no.Code, "a no waits for nothing")
}

// While MySQL is unreachable or late, the outcome is unknown. The same
// key must get the answer later.
func TestRows_TheOutcomeIsUnknownUntilMySQLAnswers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.set(func(m *table) { m.isAway = true })
	for range 2 {
		got := s.claim("ada", "Idempotency-Key: key")
		apitest.RequireProblem(t, got.Code, got.Header(), got.Body.Bytes(), "outcome_unknown")
	}
	s.set(func(m *table) { m.isAway = false; m.isFast = true })
	got := s.claim("ada", "Idempotency-Key: key")
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	require.Equal(t, "true", got.Header().Get("Idempotent-Replayed"))
	state, err := s.scripts.State(t.Context(), "spring")
	require.NoError(t, err)
	require.Equal(t, int64(1), state.Seq, "it is one claim")
}

// A batch's claims wait together, but each must be answered by its own row.
func TestRows_OfABatch(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.set(func(m *table) { m.isFast = true })
	require.Equal(t, http.StatusCreated, s.claim("old", "Idempotency-Key: known").Code)
	s.set(func(m *table) { m.isFast = false })
	got := apitest.Ask(s.h, http.MethodPost, "/v1/claims:batch", `{"claims":[`+
		`{"campaign_id":"spring","user_id":"old","idempotency_key":"known"},`+
		`{"campaign_id":"spring","user_id":"new"},{"campaign_id":"spring","user_id":"much","quantity":200000}]}`)
	require.Equal(t, http.StatusOK, got.Code)
	body := got.Body.String()
	require.Contains(t, body, `"status":201`)
	require.Contains(t, body, "outcome_unknown")
	require.Contains(t, body, "claim_id", "without a key the claim is named")
	require.Contains(t, body, "sold_out")
}

// Only answered claims count as seen. If Redis is restored to before a
// claim of unknown outcome, it must not count as rolled back.
func TestRows_WhatWasNotAnsweredIsNotMissing(t *testing.T) {
	t.Parallel()
	for name, isAnswered := range map[string]bool{"answered": true, "not answered": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.set(func(m *table) { m.isFast = true })
			require.Equal(t, http.StatusCreated, s.claim("a").Code)
			key := lua.KeysOf("spring", 0).State
			before, err := s.rdb.HGetAll(t.Context(), key).Result()
			require.NoError(t, err)
			s.set(func(m *table) { m.isFast = isAnswered })
			require.Equal(t, isAnswered, s.claim("b").Code == http.StatusCreated)
			// Redis is restored to before b
			require.NoError(t, s.rdb.HSet(t.Context(), key, before).Err())
			s.set(func(m *table) { m.isFast = true })
			require.Equal(t, !isAnswered, s.claim("c").Code == http.StatusCreated)
		})
	}
}

// A claim whose row couldn't be waited for must not be sent.
func TestRows_TooManyWait(t *testing.T) {
	t.Parallel()
	require.Equal(t, wire.CodeUnavailable, claiming.RefusedWhileRowsAreFull(t.Context(), &table{}))
}
