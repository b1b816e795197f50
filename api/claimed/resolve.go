package claimed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/models"
)

// BodyMax bounds the body of a decision, in bytes: 200 characters, each
// escaped.
const BodyMax = 8 << 10

type (
	redeemBody struct {
		OrderID string `json:"order_id" minLength:"1" maxLength:"128" doc:"characters that can be seen, kept in Unicode's normal form C; no blank at either end"`
	}
	releaseBody struct {
		Reason string `json:"reason,omitempty" maxLength:"200" doc:"printable characters"`
	}
	reopenBody struct {
		OrderID string `json:"order_id" minLength:"1" maxLength:"128" doc:"that redeemed the claim"`
		Reason  string `json:"reason,omitempty" maxLength:"200" doc:"printable characters"`
	}
	extendBody struct {
		By string `json:"by" doc:"how much longer the hold lasts, such as 10m, in whole milliseconds"`
	}
)

// PostRedeem is POST /v1/claims/{id}/redeem.
func (s *Routes) PostRedeem(w http.ResponseWriter, r *http.Request) int {
	var order string
	p := readFields(r, wire.Visible("order_id", &order, models.UserID).Required())
	return s.resolve(w, r, p, verbRedeem, func(ctx context.Context, id string) (models.Resolution, error) {
		return s.cfg.Resolver.Redeem(ctx, id, order)
	})
}

// PostRelease is POST /v1/claims/{id}/release. It needs no body.
func (s *Routes) PostRelease(w http.ResponseWriter, r *http.Request) int {
	var reason string
	p := readFields(r, wire.ID("reason", &reason, checkReason))
	return s.resolve(w, r, p, verbRelease, func(ctx context.Context, id string) (models.Resolution, error) {
		if err := s.mayTouch(ctx, id); err != nil {
			return models.Resolution{}, err
		}
		return s.cfg.Resolver.Release(ctx, id, reason)
	})
}

// PostReopen is POST /v1/claims/{id}/reopen.
func (s *Routes) PostReopen(w http.ResponseWriter, r *http.Request) int {
	var order, reason string
	p := readFields(r, wire.Visible("order_id", &order, models.UserID).Required(), wire.ID("reason", &reason, checkReason))
	return s.resolve(w, r, p, verbReopen, func(ctx context.Context, id string) (models.Resolution, error) {
		return s.cfg.Resolver.Reopen(ctx, id, order, reason)
	})
}

// PostExtend is POST /v1/claims/{id}/extend.
func (s *Routes) PostExtend(w http.ResponseWriter, r *http.Request) int {
	var by time.Duration
	parse := func(text string) (err error) {
		by, err = models.ParseHold(text)
		if by == 0 && err == nil {
			err = fmt.Errorf("%w: must be above 0", models.ErrID)
		}
		return err
	}
	p := readFields(r, wire.ID("by", new(string), parse).Required())
	key, noKey := wire.IdempotencyKey(r.Header)
	return s.resolve(w, r, cmp.Or(p, noKey), verbExtend, func(ctx context.Context, id string) (models.Resolution, error) {
		return s.cfg.Resolver.Extend(ctx, id, by, key)
	})
}

// errForbidden means the claim belongs to a user that the caller may not
// act for.
var errForbidden = errors.New("claimed: the claim is another user's")

// mayTouch checks whether the caller may act for the claim's user. Errors:
// errForbidden, and those of Claims.
func (s *Routes) mayTouch(ctx context.Context, id string) error {
	who := caller.Of(ctx)
	if who.User == "" {
		return nil
	}
	c, err := s.cfg.Claims.Claim(ctx, id)
	if err == nil && !who.MayActFor(c.UserID) {
		err = errForbidden
	}
	return err
}

func checkReason(text string) error {
	if text == "" {
		return nil
	}
	return models.CheckReleaseReason(text)
}

// readFields treats a missing body as {}.
func readFields(r *http.Request, fields ...wire.Field) *wire.Problem {
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	p := wire.ReadBody(r, buf, BodyMax)
	if buf.Len() == 0 {
		buf.WriteString("{}")
	}
	if p == nil {
		p = wire.ReadObject(buf.Bytes(), fields)
	}
	return p
}

type decide func(ctx context.Context, claimID string) (models.Resolution, error)

// resolve answers a decision. p is a refusal of its body, or nil.
func (s *Routes) resolve(w http.ResponseWriter, r *http.Request, p *wire.Problem, verb string, run decide) int {
	id := r.PathValue("id")
	if p == nil {
		p = wire.InvalidID("id", models.CheckClaimID(id))
	}
	var res models.Resolution
	if p == nil {
		var err error
		res, err = s.whenSynced(r.Context(), id, run)
		if err == nil && res.Claim.Status == models.ClaimReleased {
			s.cfg.Changed(res.Claim.CampaignID)
		}
		p = s.refuseResolution(r.Context(), &res, err)
	}
	if p != nil {
		s.metrics.resolved(verb, string(p.Code))
		return p.Write(w)
	}
	s.metrics.resolved(verb, string(res.Resolved))
	body, err := json.Marshal(&res.Claim)
	if err != nil { // strings, numbers and times always marshal
		panic(err)
	}
	w.Header()["Content-Type"] = wire.JSONContentType
	_, _ = w.Write(body) // a disconnected client may retry
	return http.StatusOK
}

// errParked means MySQL refuses the claim's row, which a decision needs.
var errParked = errors.New("claimed: the claim is parked")

// whenSynced runs a decision, which needs the claim's row. It waits for the
// row of a claim that was answered a moment ago. Errors: models.ErrNotFound
// if there is no such claim, errUnsynced; after any other the outcome is
// unknown.
func (s *Routes) whenSynced(ctx context.Context, id string, run decide) (models.Resolution, error) {
	ctx, cancel := context.WithTimeout(ctx, appliedWait+resolveTimeout)
	defer cancel()
	res, err := run(ctx, id)
	if !errors.Is(err, models.ErrNotFound) {
		return res, err
	}
	if err := s.awaitApplied(ctx); err != nil {
		return res, s.whyNoRow(ctx, id, err)
	}
	res, err = run(ctx, id)
	if errors.Is(err, models.ErrNotFound) {
		err = s.whyNoRow(ctx, id, err)
	}
	return res, err
}

// whyNoRow is errParked if the claim is parked, else found. Errors: those
// of Claims.
func (s *Routes) whyNoRow(ctx context.Context, id string, found error) error {
	c, err := s.cfg.Claims.Claim(ctx, id)
	switch {
	case errors.Is(err, models.ErrNotFound):
		return found
	case err == nil && c.Status == models.ClaimParked && !caller.Of(ctx).MayActFor(c.UserID):
		return errForbidden
	case err == nil && c.Status == models.ClaimParked:
		return errParked
	case err == nil:
		return errUnsynced // the row arrived just now
	}
	return err
}

// refuseResolution is the refusal of a decision, or nil after a success. It
// logs the error.
func (s *Routes) refuseResolution(ctx context.Context, res *models.Resolution, err error) *wire.Problem {
	switch {
	case errors.Is(err, models.ErrNotFound):
		return wire.Refuse(wire.CodeClaimNotFound)
	case errors.Is(err, errForbidden):
		return wire.NotYours(caller.Of(ctx).User)
	case errors.Is(err, errParked):
		return wire.Refuse(wire.CodeClaimParked)
	case errors.Is(err, errUnsynced):
		return &wire.Problem{
			Code: wire.CodeUnavailable, Detail: "The claim is not in MySQL, which is behind. Send the request again: a second time does no harm.",
		}
	case errors.Is(err, models.ErrBehind):
		return &wire.Problem{
			Code: wire.CodeUnavailable, Detail: "MySQL was restored, and is reading what it forgot from the claim " +
				"stream. Send the request again: a second time does no harm.",
		}
	case err != nil:
		s.logSome.Do(func() {
			s.cfg.Logger.WarnContext(ctx, "a claim could not be redeemed or released; are mysql and redis up?", slog.Any("error", err))
		})
		return &wire.Problem{
			Code: wire.CodeUnavailable, Detail: "MySQL or Redis does not answer. Send the request again: a second time does no harm.",
		}
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
		return wire.Refuse(wire.CodeAlreadyReleased)
	case models.ResolvedNotRedeemed:
		return wire.Refuse(wire.CodeNotRedeemed)
	case models.ResolvedNoHold:
		return wire.Invalid("id", "the claim has no hold: it may stay unredeemed for ever")
	case models.ResolvedPacket:
		return wire.Invalid("id", "a packet can't be redeemed or released: its amount was credited as it was claimed")
	}
	return wire.Refuse(wire.CodeInternal)
}

// DocumentRedeem describes PostRedeem.
func DocumentRedeem(oapi *huma.OpenAPI, op *huma.Operation) {
	documentResolution(oapi, op, "The claim is redeemed by this order")
	wire.DocumentBody(op, wire.SchemaOf[redeemBody](oapi))
}

// DocumentRelease describes PostRelease.
func DocumentRelease(oapi *huma.OpenAPI, op *huma.Operation) {
	documentResolution(oapi, op, "The claim is released or expired; what it took is back")
	wire.DocumentBody(op, wire.SchemaOf[releaseBody](oapi))
	op.RequestBody.Required = false
}

// DocumentReopen describes PostReopen.
func DocumentReopen(oapi *huma.OpenAPI, op *huma.Operation) {
	documentResolution(oapi, op, "The redeem is taken back; of a repetition, the claim as it is by now")
	wire.DocumentBody(op, wire.SchemaOf[reopenBody](oapi))
}

// DocumentExtend describes PostExtend.
func DocumentExtend(oapi *huma.OpenAPI, op *huma.Operation) {
	documentResolution(oapi, op, "The hold ends at expires_at")
	op.Parameters = append(op.Parameters, wire.KeyParam("characters that can be seen, as in user_id;"+
		" of the claim: the same key extends it once"))
	wire.DocumentBody(op, wire.SchemaOf[extendBody](oapi))
}

func documentResolution(oapi *huma.OpenAPI, op *huma.Operation, description string) {
	op.Parameters = []*huma.Param{wire.IDParam()}
	wire.DocumentAnswer(op, "200", description, wire.JSONContentType[0], wire.SchemaOf[models.Claim](oapi))
}
