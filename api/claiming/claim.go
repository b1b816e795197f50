package claiming

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"

	"dibs/api/claiming/form"
	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/lua"
	"dibs/models"
)

// PostClaim is POST /v1/campaigns/{id}/claims.
func (s *Routes) PostClaim(w http.ResponseWriter, r *http.Request) int {
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	campaignID := form.CampaignOf(r)
	req, p := readClaim(r, campaignID, buf)
	var reply lua.ClaimReply
	if p == nil {
		req.Subjects = req.Subjects.Hide(s.cfg.SubjectSecret)
		reply, p = s.claim(r.Context(), campaignID, req)
	}
	s.metrics.count(outcomeOf(&reply, p))
	if p != nil {
		return p.Write(w)
	}
	h := w.Header()
	h["Content-Type"] = wire.JSONContentType
	if reply.Outcome == models.OutcomeReplayed {
		wire.SetReplayed(h)
	}
	buf.Reset()
	w.WriteHeader(http.StatusCreated)
	// a disconnected client retries with its key
	_, _ = w.Write(form.AppendClaim(buf.AvailableBuffer(), &reply.Claim))
	return http.StatusCreated
}

func readClaim(r *http.Request, campaignID string, buf *bytes.Buffer) (req lua.ClaimRequest, p *wire.Problem) {
	p = wire.InvalidID("campaign_id", models.CheckCampaignID(campaignID))
	if p != nil {
		return req, p
	}
	req.Key, p = wire.IdempotencyKey(r.Header)
	if p != nil {
		return req, p
	}
	p = wire.ReadBody(r, buf, form.ClaimBodyMax)
	if p != nil {
		return req, p
	}
	who := caller.Of(r.Context())
	body, p := form.DecodeClaim(buf.Bytes(), who.User)
	if p == nil && !who.MayActFor(body.UserID) {
		p = wire.NotYours(who.User)
	}
	req.UserID = body.UserID
	req.Quantity = body.Quantity
	req.Subjects = body.Subjects
	return req, p
}

func (s *Routes) claim(ctx context.Context, campaignID string, req lua.ClaimRequest) (lua.ClaimReply, *wire.Problem) {
	now := s.cfg.Clock()
	l, err := s.lanes.get(ctx, campaignID, now)
	if err != nil {
		return lua.ClaimReply{}, s.refuseUnknown(ctx, campaignID, err)
	}
	if p := l.admit(s, &req, now); p != nil {
		l.tally.count(string(p.Code), s.cfg.Clock().Sub(now))
		return lua.ClaimReply{}, p
	}
	t := s.send(ctx, l, req)
	p := l.nameLimit(form.Refusal(&t))
	l.tally.count(outcomeOf(&t.Reply, p), s.cfg.Clock().Sub(now))
	return t.Reply, p
}

func outcomeOf(reply *lua.ClaimReply, p *wire.Problem) string {
	if p != nil {
		return string(p.Code)
	}
	return string(reply.Outcome)
}

// refuseUnknown refuses a claim whose campaign wasn't found, and logs
// the error.
func (s *Routes) refuseUnknown(ctx context.Context, campaignID string, err error) *wire.Problem {
	if errors.Is(err, models.ErrNotFound) {
		return wire.Refuse(wire.CodeCampaignNotFound)
	}
	s.logSome.Do(func() {
		s.cfg.Logger.WarnContext(ctx, "campaign could not be looked up, its claims are refused; are redis and mysql up?",
			slog.String("campaign_id", campaignID), slog.Any("error", err))
	})
	return wire.Refuse(wire.CodeUnavailable)
}
