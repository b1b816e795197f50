package crowd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"dibs/models"
)

// answer is the outcome of one claim: a claim, a refusal's code,
// or neither without a reply.
type answer struct {
	claim    *models.Claim
	body     string // the claim, byte for byte
	code     string
	replayed bool
}

// unreached is the code of a request without a connection.
const unreached = "unreached"

// noAnswer is the outcome of a failed request: unreached if it
// was certainly not sent, else unknown.
func noAnswer(err error) answer {
	if errors.Is(err, ErrUnsent) {
		return answer{code: unreached}
	}
	return answer{}
}

// unknown reports whether the claim may have been made.
func (a answer) unknown() bool {
	return a.claim == nil && (a.code == "" || a.code == "outcome_unknown")
}

// retryable reports whether a retry may get another reply.
func (a answer) retryable() bool {
	return a.unknown() || slices.Contains([]string{unreached, "unavailable", "rate_limited"}, a.code)
}

type claimBody struct {
	CampaignID     string `json:"campaign_id,omitempty"`
	UserID         string `json:"user_id"`
	Quantity       int64  `json:"quantity"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`

	Subjects map[string]string `json:"subjects,omitempty"`
}

func (r *run) subjects(user int) map[string]string {
	if r.plan.Subjects == nil {
		return nil
	}
	return r.plan.Subjects(user)
}

// send sends the users' claims once and returns their outcomes.
func (r *run) send(ctx context.Context, base string, users []int) []answer {
	if r.plan.Batch > 1 {
		return r.sendBatch(ctx, base, users)
	}
	answers := make([]answer, len(users))
	for i, user := range users {
		answers[i] = r.sendOne(ctx, base, user)
	}
	return answers
}

// key is a user's idempotency key, the same in every attempt.
func (r *run) key(user int) string { return "key-" + r.plan.UserID(user) }

func (r *run) sendOne(ctx context.Context, base string, user int) answer {
	url := base + "/v1/campaigns/" + r.plan.CampaignID + "/claims"
	res, err := r.post(ctx, url, r.key(user),
		claimBody{UserID: r.plan.UserID(user), Quantity: r.plan.Quantity(user), Subjects: r.subjects(user)})
	if err != nil {
		return noAnswer(err)
	}
	if res.Status != http.StatusCreated {
		return answer{code: CodeOf(res.Body)}
	}
	return readClaim(res.Body, res.Replayed)
}

func (r *run) sendBatch(ctx context.Context, base string, users []int) []answer {
	claims := make([]claimBody, len(users))
	for i, user := range users {
		claims[i] = claimBody{
			CampaignID: r.plan.CampaignID, UserID: r.plan.UserID(user), Quantity: r.plan.Quantity(user), IdempotencyKey: r.key(user),
			Subjects: r.subjects(user),
		}
	}
	answers := make([]answer, len(users))
	res, err := r.post(ctx, base+"/v1/claims:batch", "", map[string]any{"claims": claims})
	if err != nil {
		for i := range answers {
			answers[i] = noAnswer(err)
		}
		return answers
	}
	var batch struct {
		Results []struct {
			Status  int             `json:"status"`
			Claim   json.RawMessage `json:"claim"`
			Problem json.RawMessage `json:"problem"`
		} `json:"results"`
	}
	if res.Status != http.StatusOK || json.Unmarshal(res.Body, &batch) != nil || len(batch.Results) != len(users) {
		for i := range answers {
			answers[i].code = CodeOf(res.Body)
		}
		return answers
	}
	for i, result := range batch.Results {
		if result.Status == http.StatusCreated {
			answers[i] = readClaim(result.Claim, false)
		} else {
			answers[i].code = CodeOf(result.Problem)
		}
	}
	return answers
}

func (r *run) post(ctx context.Context, url, key string, body any) (Response, error) {
	return Call(ctx, r.client, http.MethodPost, url, r.plan.Token, key, body)
}

func readClaim(body []byte, replayed bool) answer {
	var c models.Claim
	if err := json.Unmarshal(body, &c); err != nil || c.ID == "" {
		return answer{code: fmt.Sprintf("not a claim: %.100s", body)}
	}
	return answer{claim: &c, body: string(bytes.TrimSpace(body)), replayed: replayed}
}
