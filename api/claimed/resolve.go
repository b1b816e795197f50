package claimed

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
	"dibs/models"
)

// ResolveBodyMax is the largest body of a redeem or a release, in bytes: 200 characters, each escaped.
const ResolveBodyMax = 8 << 10

// resolvePauses lie between two looks for the row of a claim.
func resolvePauses() backoff.BackOff {
	return &backoff.ExponentialBackOff{InitialInterval: 5 * time.Millisecond, MaxInterval: 100 * time.Millisecond, Multiplier: 2}
}

// redeemBody is the body of a redeem, as the OpenAPI document has it.
type redeemBody struct {
	OrderID string `json:"order_id" minLength:"1" maxLength:"128" doc:"printable characters"`
}

// releaseBody is the body of a release, as the OpenAPI document has it.
type releaseBody struct {
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"printable characters"`
}

// postRedeem is POST /v1/claims/{id}/redeem.
func (s *Routes) PostRedeem(w http.ResponseWriter, r *http.Request) int {
	order, p := readOne(r, "order_id", models.CheckUserID)
	if p == nil && order == "" {
		p = wire.Invalid("order_id", "is required")
	}
	return s.resolve(w, r, p, verbRedeem, func(ctx context.Context, id string) (models.Resolution, error) {
		return s.cfg.Resolver.Redeem(ctx, id, order)
	})
}

// postRelease is POST /v1/claims/{id}/release. It needs no body.
func (s *Routes) PostRelease(w http.ResponseWriter, r *http.Request) int {
	reason, p := readOne(r, "reason", func(text string) error {
		if text == "" {
			return nil
		}
		return models.CheckReleaseReason(text)
	})
	return s.resolve(w, r, p, verbRelease, func(ctx context.Context, id string) (models.Resolution, error) {
		return s.cfg.Resolver.Release(ctx, id, reason)
	})
}

// readOne reads a body of one text field, which may be missing.
func readOne(r *http.Request, name string, check func(text string) error) (value string, p *wire.Problem) {
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	if *buf, p = wire.ReadJSON(r, *buf, ResolveBodyMax); p != nil || len(*buf) == 0 {
		return "", p
	}
	p = wire.ScanObject(*buf, []string{name}, func(s *wire.Scanner, _ int) *wire.Problem {
		text, p := s.Str(name)
		if p != nil {
			return p
		}
		value = string(text)
		if err := check(value); err != nil {
			return wire.Invalid(name, wire.IDReason(err))
		}
		return nil
	})
	return value, p
}

// decide redeems or releases a claim, see Resolver.
type decide func(ctx context.Context, claimID string) (models.Resolution, error)

func (s *Routes) resolve(w http.ResponseWriter, r *http.Request, p *wire.Problem, verb string, run decide) int {
	id := r.PathValue("id")
	if p == nil && models.CheckClaimID(id) != nil {
		p = wire.Invalid("id", wire.IDReason(models.CheckClaimID(id)))
	}
	if p != nil {
		s.metrics.resolved(verb, string(p.Code))
		return p.Write(w)
	}
	res, err := s.whenSynced(r.Context(), id, run)
	if err == nil && res.Claim.Status == models.ClaimReleased {
		s.cfg.Changed(res.Claim.CampaignID) // whatever was known of its stock is wrong now
	}
	if p = s.resolutionProblem(&res, err); p != nil {
		s.metrics.resolved(verb, string(p.Code))
		return p.Write(w)
	}
	s.metrics.resolved(verb, string(res.Resolved))
	body, err := json.Marshal(&res.Claim)
	if err != nil { // strings, numbers and times always marshal
		panic(err)
	}
	w.Header()["Content-Type"] = wire.JSONContentType
	_, _ = w.Write(body) // a client that is gone may ask again
	return http.StatusOK
}

// errUnsynced says that a claim is there and its row is not, yet.
var errUnsynced = errors.New("api: the claim is not in mysql yet")

// whenSynced runs a decision, which needs the row of the claim. A claim that was answered a moment ago may not have it yet: then
// its row is waited for. Errors: models.ErrNotFound when there is surely no such claim; any other means that nothing is known to
// be decided.
func (s *Routes) whenSynced(ctx context.Context, id string, run decide) (models.Resolution, error) {
	until := time.Now().Add(s.cfg.ResolveWait)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ResolveWait+s.cfg.AdminTimeout)
	defer cancel()
	res, err := run(ctx, id)
	if !errors.Is(err, models.ErrNotFound) {
		return res, err
	}
	event, tailErr := s.tail.find(ctx, id)
	if event == nil {
		res, err = run(ctx, id) // it may have got its row in between
		if tailErr != nil && errors.Is(err, models.ErrNotFound) {
			err = tailErr
		}
		return res, err
	}
	res, err = backoff.Retry(ctx, func() (models.Resolution, error) {
		res, err := run(ctx, id)
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			err = backoff.Permanent(err)
		}
		return res, err
	}, backoff.WithBackOff(resolvePauses()), backoff.WithMaxElapsedTime(time.Until(until)))
	if errors.Is(err, models.ErrNotFound) {
		return models.Resolution{}, errUnsynced
	}
	return res, err
}

// resolutionProblem is the refusal of a decision, nil when it is a yes. It is the end of the error's way.
func (s *Routes) resolutionProblem(res *models.Resolution, err error) *wire.Problem {
	switch {
	case errors.Is(err, models.ErrNotFound):
		return &wire.Problem{Code: wire.CodeClaimNotFound}
	case errors.Is(err, errUnsynced):
		return &wire.Problem{Code: wire.CodeUnavailable, Detail: "The claim is on its way into the books. Ask again; asking twice does no harm."}
	case err != nil:
		s.complain.Do(func() { s.log.Warn("claim not resolved", slog.Any("error", err)) })
		return &wire.Problem{Code: wire.CodeUnavailable, Detail: "The books are not available now. Ask again; asking twice does no harm."}
	}
	switch res.Resolved {
	case models.ResolvedNow, models.ResolvedBefore:
		return nil
	case models.ResolvedAlreadyRedeemed:
		return &wire.Problem{Code: wire.CodeAlreadyRedeemed, Detail: "The claim was redeemed by order " + res.Claim.OrderID + "."}
	case models.ResolvedAlreadyReleased:
		if res.Claim.Status == models.ClaimExpired {
			return &wire.Problem{Code: wire.CodeAlreadyReleased, Detail: "The claim expired: it was not redeemed in time."}
		}
		return &wire.Problem{Code: wire.CodeAlreadyReleased}
	case models.ResolvedPacket:
		return wire.Invalid("id", "a packet can't be redeemed or released: its amount was credited as it was claimed")
	}
	return &wire.Problem{Code: wire.CodeInternal}
}

func DocumentRedeem(oapi *huma.OpenAPI, op *huma.Operation) {
	documentResolution(oapi, op, "The claim is redeemed by this order")
	wire.Takes(op, wire.SchemaOf[redeemBody](oapi, "RedeemRequest"))
}

func DocumentRelease(oapi *huma.OpenAPI, op *huma.Operation) {
	documentResolution(oapi, op, "The claim is released or expired; what it took is back")
	wire.Takes(op, wire.SchemaOf[releaseBody](oapi, "ReleaseRequest"))
	op.RequestBody.Required = false
}

func documentResolution(oapi *huma.OpenAPI, op *huma.Operation, description string) {
	op.Parameters = []*huma.Param{{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}}}
	wire.Answers(op, "200", description, wire.JSONContentType[0], wire.SchemaOf[models.Claim](oapi, "Claim"))
}
