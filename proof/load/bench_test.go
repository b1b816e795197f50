package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/client"
)

// fake is a Dibs with one campaign, whose figures may be wrong.
type fake struct {
	mu     sync.Mutex
	stock  client.Stock
	slow   time.Duration // of each claim or batch
	polls  int
	behind int   // polls after the last claim until everything is synced
	lie    int64 // added to what was claimed
	keys   map[string]bool
	tokens map[string]bool
	shared int // claims sent in batches
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	<-time.After(f.slow)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens[r.Header.Get("Authorization")] = true
	switch {
	case strings.HasSuffix(r.URL.Path, "/claims"):
		status, text := f.claim(r.Header.Get("Idempotency-Key"))
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	case strings.HasSuffix(r.URL.Path, "/claims:batch"):
		f.batch(w, r)
	case strings.HasSuffix(r.URL.Path, "/stock"):
		f.polls++
		s := f.stock
		s.CampaignID = "x"
		s.Claimed += f.lie
		s.Remaining = s.Total - s.Claimed
		if f.polls > f.behind {
			s.Synced = s.Claimed
		}
		s.Backlog = s.Claimed - s.Synced
		if err := json.NewEncoder(w).Encode(s); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	case strings.HasSuffix(r.URL.Path, "/close"):
		_, _ = w.Write([]byte(`{}`))
	default:
		_ = json.NewDecoder(r.Body).Decode(&f.stock)
		_, _ = w.Write([]byte(`{}`))
	}
}

func (f *fake) claim(key string) (status int, text string) {
	f.keys[key] = true
	f.polls = 0
	if f.stock.Claimed == f.stock.Total {
		return http.StatusConflict, `{"status":409,"code":"sold_out"}`
	}
	f.stock.Claimed++
	return http.StatusCreated, `{}`
}

func (f *fake) batch(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Claims []struct {
			Key string `json:"idempotency_key"`
		} `json:"claims"`
	}
	_ = json.NewDecoder(r.Body).Decode(&asked)
	f.shared += len(asked.Claims)
	var results []string
	for _, c := range asked.Claims {
		status, text := f.claim(c.Key)
		what := "claim"
		if status != http.StatusCreated {
			what = "problem"
		}
		results = append(results, fmt.Sprintf(`{"status":%d,%q:%s}`, status, what, text))
	}
	_, _ = w.Write([]byte(`{"results":[` + strings.Join(results, ",") + `]}`))
}

func bench(t *testing.T, f *fake, stock int64) Report {
	t.Helper()
	return benchTarget(t, f, stock, Target{Keys: true})
}

func benchTarget(t *testing.T, f *fake, stock int64, target Target) Report {
	t.Helper()
	f.keys, f.tokens = map[string]bool{}, map[string]bool{}
	server := httptest.NewServer(f)
	defer server.Close()
	target.BaseURL, target.Token, target.CampaignID, target.Users = server.URL, "secret", "x", 7
	b := Bench{
		Target: &target, Stock: stock,
		Plan: Plan{Rate: 500, WarmUp: 100 * time.Millisecond, Duration: 400 * time.Millisecond, Connections: 20}, SyncWait: time.Minute,
	}
	report, err := b.Run(t.Context())
	require.NoError(t, err)
	return report
}

func TestASellOutAgreesAndEveryClaimHasItsKey(t *testing.T) {
	t.Parallel()
	f := &fake{behind: 4}
	r := bench(t, f, 100)
	require.True(t, r.Books.Agree, r.Books.Wrong)
	require.EqualValues(t, 100, r.Books.Accepted)
	require.EqualValues(t, 200, r.Sent)
	require.EqualValues(t, 50, r.Accepted, "the other 50 were the warm-up's")
	require.Equal(t, map[string]int64{"sold_out": 150}, r.Refused)
	require.Len(t, f.keys, 250)
	require.Equal(t, map[string]bool{"Bearer secret": true}, f.tokens)
	require.Greater(t, f.polls, 4, "it asked until the fifth poll said that all is synced")
}

func TestABatchingRunIsCountedClaimByClaim(t *testing.T) {
	t.Parallel()
	f := &fake{slow: 30 * time.Millisecond}
	r := benchTarget(t, f, 100, Target{Keys: true, Batch: true})
	require.True(t, r.Plan.Batch)
	require.True(t, r.Books.Agree, r.Books.Wrong)
	require.EqualValues(t, 200, r.Sent)
	require.EqualValues(t, 50, r.Accepted)
	require.Equal(t, map[string]int64{"sold_out": 150}, r.Refused)
	require.Empty(t, r.Errors)
	require.Len(t, f.keys, 250)
	require.Contains(t, f.keys, "x-249")
	require.Equal(t, map[string]bool{"Bearer secret": true}, f.tokens)
	require.Greater(t, f.shared, 50, "of 250, when one comes each 2 ms and five calls at once take 30")
}

func TestErrorsOfTheClientAreCountedAsAnswersAre(t *testing.T) {
	t.Parallel()
	refused := func(status int, code client.Code) error { return &client.Problem{Status: status, Code: code} }
	for want, err := range map[Answer]error{
		{}:                                  nil,
		{Code: "user_limit"}:                refused(409, client.ErrUserLimit),
		{Code: "unavailable", Fault: true}:  refused(503, client.ErrUnavailable),
		{Code: "unauthorized", Fault: true}: refused(401, client.ErrUnauthorized),
		{Code: "outcome_unknown", Fault: true, Unknown: true}: &client.OutcomeError{Last: refused(503, client.ErrOutcomeUnknown)},
		{Code: "internal", Fault: true, Unknown: true}:        &client.OutcomeError{Last: refused(500, client.ErrInternal)},
		{Code: "timeout", Fault: true, Unknown: true}:         &client.OutcomeError{Last: context.DeadlineExceeded},
		{Code: "no_answer", Fault: true}:                      fmt.Errorf("%w: refused", client.ErrUnavailable),
	} {
		require.Equal(t, want, answerOfClient(err))
	}
}

func TestBooksThatDoNotAgreeAreWrong(t *testing.T) {
	t.Parallel()
	for _, lie := range []int64{1, -1} {
		require.Len(t, bench(t, &fake{lie: lie}, 1000).Books.Wrong, 1)
	}
}

func TestAnUnknownAnswerMayBeAClaim(t *testing.T) {
	t.Parallel()
	s := client.Stock{Total: 10, Claimed: 5, Remaining: 5, Synced: 5}
	require.True(t, compare(10, &totals{accepted: 4, unknown: 1}, &s, 0).Agree)
	require.False(t, compare(10, &totals{accepted: 4}, &s, 0).Agree)
}

func TestTheShapeOfTheJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(bench(t, &fake{}, 1000))
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(text, &got))
	keys := func(v any) (names []string) {
		m, isObject := v.(map[string]any)
		require.True(t, isObject)
		for name := range m {
			names = append(names, name)
		}
		return names
	}
	require.ElementsMatch(t, []string{
		"url", "servers", "campaign_id", "plan", "sent", "unsent", "accepted", "refused", "errors", "achieved_rate",
		"latency_ms", "late", "late_max_ms", "waited_for_connection", "sync", "books",
	}, keys(got))
	require.ElementsMatch(t, []string{"p50", "p90", "p99", "p99_9", "max"}, keys(got["latency_ms"]))
	require.ElementsMatch(t, []string{"accepted", "unknown", "claimed", "synced", "synced_after_ms", "agree", "wrong"}, keys(got["books"]))
	require.IsType(t, []any{}, got["books"].(map[string]any)["wrong"], "empty, not null")
	require.IsType(t, map[string]any{}, got["errors"])
}

func TestTheAgeOfWhatIsNotInTheBooks(t *testing.T) {
	t.Parallel()
	second := time.Second
	lag := lagOf([]sample{{second, 0, 0}, {2 * second, 100, 0}, {3 * second, 200, 90}, {4 * second, 200, 100}, {5 * second, 200, 200}}, 2)
	require.EqualValues(t, 110, lag.BacklogMax)
	require.InDelta(t, 2000, lag.AgeMaxMS, 0, "at 3 s and 4 s the oldest came after 1 s and after 2 s")
	require.Len(t, lag.Backlog, 5)
	require.Equal(t, 2, lag.PollFaults)
	require.Zero(t, lagOf([]sample{{second, 5, 5}}, 0).AgeMaxMS)
}

func TestOnlyAConflictIsAnAnswerOfTheCampaign(t *testing.T) {
	t.Parallel()
	require.Equal(t, Answer{}, answerOf(201, nil))
	require.Equal(t, Answer{Code: "user_limit"}, answerOf(409, []byte(`{"code":"user_limit"}`)))
	require.Equal(t, Answer{Code: "unavailable", Fault: true}, answerOf(503, []byte(`{"code":"unavailable"}`)))
	require.Equal(t, Answer{Code: "outcome_unknown", Fault: true, Unknown: true}, answerOf(503, []byte(`{"code":"outcome_unknown"}`)))
	require.Equal(t, Answer{Code: "status_502", Fault: true, Unknown: true}, answerOf(502, []byte(`<html>`)))
}
