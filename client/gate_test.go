package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/client"
)

type gate struct {
	mu   sync.Mutex
	came []*request
}

type request struct {
	batch  bool
	users  []string // claimed for, in order
	keys   []string
	at     time.Time
	answer chan func() (*http.Response, error)
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	type sent struct {
		UserID string `json:"user_id"`
		Key    string `json:"idempotency_key"`
	}
	var text struct {
		sent

		Claims []sent `json:"claims"`
	}
	if err := json.Unmarshal(body, &text); err != nil {
		return nil, err
	}
	r := &request{
		batch: strings.HasSuffix(req.URL.Path, "/claims:batch"), at: time.Now(),
		answer: make(chan func() (*http.Response, error), 1),
	}
	if !r.batch {
		text.Key = req.Header.Get("Idempotency-Key")
		text.Claims = append(text.Claims, text.sent)
	}
	for _, c := range text.Claims {
		r.users, r.keys = append(r.users, c.UserID), append(r.keys, c.Key)
	}
	g.mu.Lock()
	g.came = append(g.came, r)
	g.mu.Unlock()
	select {
	case answer := <-r.answer:
		return answer()
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// requests waits until nothing runs, and returns all requests so far.
func (g *gate) requests() []*request {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.came
}

// open answers all waiting requests, until no more arrive.
func (g *gate) open() { g.answer(0, accepted) }

// answer answers the requests from this index on, by user, until no more
// arrive. It returns their total number.
func (g *gate) answer(from int, result func(user string) string) int {
	for {
		came := g.requests()
		if len(came) == from {
			return from
		}
		for _, r := range came[from:] {
			r.reply(result)
		}
		from = len(came)
	}
}

// reply answers with a result for each user, in the order of the batch. An
// answered request keeps its answer.
func (r *request) reply(result func(user string) string, headers ...string) {
	results := make([]string, len(r.users))
	for i, user := range r.users {
		results[i] = result(user)
	}
	answer := answered(200, `{"results":[`+strings.Join(results, ",")+`]}`, headers...)
	if !r.batch {
		var one struct {
			Status         int
			Claim, Problem json.RawMessage
		}
		if err := json.Unmarshal([]byte(results[0]), &one); err != nil {
			panic(err)
		}
		answer = answered(one.Status, string(one.Claim)+string(one.Problem))
	}
	select {
	case r.answer <- answer:
	default:
	}
}

func (r *request) made() { r.reply(accepted) }

func accepted(user string) string {
	return fmt.Sprintf(`{"status":201,"claim":{"id":%q,"user_id":%q}}`, "c-"+user, user)
}

func refused(status int, code client.Code) string {
	return fmt.Sprintf(`{"status":%d,"problem":{"status":%d,"code":"%s"}}`, status, status, string(code))
}

type outcome struct {
	claim client.Claim
	err   error
	after time.Duration
}

func gated(t *testing.T, cfg client.Config) (*client.Client, *gate) {
	t.Helper()
	g := &gate{}
	cfg.BaseURL, cfg.HTTP = "http://dibs.test", &http.Client{Transport: g}
	c, err := client.New(cfg)
	require.NoError(t, err)
	return c, g
}

// claims starts a claim of the campaign for each user, in order, and
// returns when all wait.
func claims(ctx context.Context, c *client.Client, campaignID string, users ...string) map[string]chan outcome {
	results := map[string]chan outcome{}
	for _, user := range users {
		results[user] = make(chan outcome, 1)
		started := time.Now()
		go func() {
			claim, err := c.Claim(ctx, client.ClaimRequest{CampaignID: campaignID, UserID: user})
			results[user] <- outcome{claim, err, time.Since(started)}
		}()
		synctest.Wait()
	}
	return results
}
