package claiming

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

// PostClaim is POST /v1/campaigns/{id}/claims.
func (s *Routes) PostClaim(w http.ResponseWriter, r *http.Request) int {
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	var a answer
	var code wire.Code
	id := claimedCampaign(r)
	req, p := readClaim(r, id, buf)
	if p == nil {
		a, code, p = s.take(r.Context(), id, req)
	}
	switch {
	case p != nil:
		s.metrics.became(string(p.Code))
		return p.Write(w)
	case code != "":
		s.metrics.became(string(code))
		return wire.WritePlain(w, code)
	}
	s.metrics.became(string(a.reply.Outcome))
	*buf = appendClaim((*buf)[:0], &a.reply.Claim)
	h := w.Header()
	h["Content-Type"] = wire.JSONContentType
	if a.reply.Outcome == models.OutcomeReplayed {
		h[wire.ReplayedHeader] = wire.ReplayedTrue
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(*buf) // a client that is gone asks again with its key
	return http.StatusCreated
}

// readClaim reads and checks everything that a claim brings along, using buf for the body.
func readClaim(r *http.Request, campaignID string, buf *[]byte) (req lua.ClaimRequest, p *wire.Problem) {
	if err := models.CheckCampaignID(campaignID); err != nil {
		return req, wire.Invalid("campaign_id", wire.IDReason(err))
	}
	if req.Key, p = wire.IdempotencyKey(r.Header); p != nil {
		return req, p
	}
	if *buf, p = wire.ReadJSON(r, *buf, ClaimBodyMax); p != nil {
		return req, p
	}
	body, p := decodeClaim(*buf)
	if p != nil {
		return req, p
	}
	req.UserID, req.Quantity = body.UserID, body.Quantity
	return req, nil
}

// take asks for the units. The refusal is a code when it has nothing of its own, else a Problem.
func (s *Routes) take(ctx context.Context, campaignID string, req lua.ClaimRequest) (answer, wire.Code, *wire.Problem) {
	now := s.cfg.Clock()
	d, err := s.desks.of(ctx, campaignID, now)
	if err != nil {
		return answer{}, s.codeOfLookup(campaignID, err), nil
	}
	if p := d.refuseQuantity(req.Quantity); p != nil {
		return answer{}, "", p
	}
	if p := s.rates.refuse(req.UserID, now); p != nil {
		return answer{}, "", p
	}
	if req.Key == "" && d.sold.refuses(now) { // last: who is let through to look must go
		return answer{}, wire.CodeSoldOut, nil
	}
	if req.ID, err = uuid.NewV7(); err != nil {
		return answer{}, wire.CodeUnavailable, nil //nolint:nilerr // no id, no claim
	}
	a := d.combiner.claim(ctx, req)
	code := a.code()
	return a, code, unknownClaim(code, &req)
}

// unknownClaim tells a client without a key which claim to look for.
func unknownClaim(code wire.Code, req *lua.ClaimRequest) *wire.Problem {
	if code != wire.CodeOutcomeUnknown || req.Key != "" {
		return nil
	}
	return &wire.Problem{
		Code: code, ClaimID: req.ID.String(),
		Detail: "The claim may have been made, under the id in claim_id. Send an Idempotency-Key to be able to ask again.",
	}
}

// codeOfLookup is the refusal of a campaign that was not found, or not now. It is the end of the error's way.
func (s *Routes) codeOfLookup(campaignID string, err error) wire.Code {
	if errors.Is(err, models.ErrNotFound) {
		return wire.CodeCampaignNotFound
	}
	s.complain.Do(func() {
		s.log.Warn("campaign not available", slog.String("campaign_id", campaignID), slog.Any("error", err))
	})
	return wire.CodeUnavailable
}

// codeOfError is the refusal of an error of Claimer: only what surely did not happen is unavailable.
func codeOfError(err error) wire.Code {
	if errors.Is(err, lua.ErrUnavailable) && !errors.Is(err, lua.ErrOutcomeUnknown) {
		return wire.CodeUnavailable
	}
	return wire.CodeOutcomeUnknown
}

// limitedOrSoldOut is what refuses a claim of a batch before it is queued, as take does.
func (s *Routes) limitedOrSoldOut(d *desk, c *batchClaim, now time.Time) *wire.Problem {
	if p := d.refuseQuantity(c.Quantity); p != nil {
		return p
	}
	if p := s.rates.refuse(c.UserID, now); p != nil {
		return p
	}
	if c.IdempotencyKey == "" && d.sold.refuses(now) {
		return &wire.Problem{Code: wire.CodeSoldOut}
	}
	return nil
}

// refuseQuantity: a claim of a packet campaign is one packet.
func (d *desk) refuseQuantity(quantity int64) *wire.Problem {
	if d.meta.Kind == models.KindPacket && quantity != 1 {
		return wire.Invalid("quantity", "must be 1 in a packet campaign")
	}
	return nil
}
