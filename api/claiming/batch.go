package claiming

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"dibs/api/claiming/form"
	"dibs/api/coalesce"
	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/lua"
	"dibs/models"
)

// batchClaim is a claim of a batch, on its way.
type batchClaim struct {
	*form.BatchClaim

	lane   *lane            // nil if the campaign wasn't found
	ticket *coalesce.Ticket // nil if refused before sending
}

// PostBatch is POST /v1/claims:batch.
func (s *Routes) PostBatch(w http.ResponseWriter, r *http.Request) int {
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	if p := wire.NoIdempotencyKey(r.Header, "must be left out: each claim of a batch has an idempotency_key of its own"); p != nil {
		return p.Write(w)
	}
	if p := wire.ReadBody(r, buf, form.BatchBodyMax); p != nil {
		return p.Write(w)
	}
	who := caller.Of(r.Context())
	sent, p := form.DecodeBatch(buf.Bytes(), who.User)
	if p != nil {
		return p.Write(w)
	}
	claims := make([]batchClaim, len(sent))
	for i := range sent {
		c := &claims[i]
		c.BatchClaim = &sent[i]
		if c.Refused == nil && !who.MayActFor(c.UserID) {
			c.Refused = wire.NotYours(who.User)
		}
		c.Subjects = c.Subjects.Hide(s.cfg.SubjectSecret)
	}
	start := s.cfg.Clock()
	s.claimAll(r.Context(), claims)
	buf.Reset()
	body, replays := s.appendResults(buf.AvailableBuffer(), claims, s.cfg.Clock().Sub(start))
	h := w.Header()
	h["Content-Type"] = wire.JSONContentType
	switch {
	case replays == nil:
	case bytes.IndexByte(replays, '0') < 0:
		wire.SetReplayed(h)
	default:
		h[form.ReplayedClaims] = []string{string(replays)}
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) //nolint:gosec // JSON; a disconnected client retries with its keys
	return http.StatusOK
}

// batchPart is a batch's claims for one campaign, in order. lane is
// the campaign's, or err says why there is none.
type batchPart struct {
	campaignID string
	claims     []*batchClaim
	tickets    []*coalesce.Ticket // of the claims to send
	lane       *lane
	shardID    string // "" of a campaign of one shard
	shard      *lane  // sends the claims, see Routes.shardOf
	err        error
}

// claimAll makes all claims. Each gets a refusal, or a ticket with its
// answer.
func (s *Routes) claimAll(ctx context.Context, claims []batchClaim) {
	parts := byCampaign(claims)
	s.findLanes(ctx, parts, func(p *batchPart) (string, **lane) { return p.campaignID, &p.lane })
	parts = byShard(parts)
	s.findLanes(ctx, parts, func(p *batchPart) (string, **lane) { return p.shardID, &p.shard })
	w := coalesce.NewCaller(ctx, len(claims))
	for i := range parts {
		s.admit(ctx, &parts[i], w)
	}
	if len(w.Tickets) == 0 {
		return
	}
	for i := range parts {
		if len(parts[i].tickets) > 0 {
			parts[i].shard.coalescer.Submit(parts[i].tickets)
		}
	}
	w.Wait()
	sent := sentBy(parts)
	s.waitForRefills(ctx, sent)
	s.awaitRows(ctx, sent)
}

func byCampaign(claims []batchClaim) []batchPart {
	var parts []batchPart
	indexes := make(map[string]int)
	for i := range claims {
		c := &claims[i]
		if c.Refused != nil {
			continue
		}
		at, ok := indexes[c.CampaignID]
		if !ok {
			at = len(parts)
			indexes[c.CampaignID] = at
			parts = append(parts, batchPart{campaignID: c.CampaignID})
		}
		parts[at].claims = append(parts[at].claims, c)
	}
	return parts
}

const batchLookupsMax = 64

// findLanes finds a lane of each part, by id, within the time of one
// look-up. What can't be found must not stop the other claims.
func (s *Routes) findLanes(ctx context.Context, parts []batchPart, of func(*batchPart) (id string, into **lane)) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	now := s.cfg.Clock()
	var lookups errgroup.Group
	lookups.SetLimit(batchLookupsMax)
	for i := range parts {
		part := &parts[i]
		id, into := of(part)
		if part.err != nil || *into != nil {
			continue
		}
		*into = s.lanes.known(id, now)
		if *into == nil {
			lookups.Go(func() error {
				*into, part.err = s.lanes.get(ctx, id, now)
				return nil
			})
		}
	}
	_ = lookups.Wait() // each part has its own error
}

func (s *Routes) admit(ctx context.Context, part *batchPart, w *coalesce.Caller) {
	now := s.cfg.Clock()
	var unknown *wire.Problem
	if part.err != nil {
		unknown = s.refuseUnknown(ctx, part.campaignID, part.err)
	}
	for _, c := range part.claims {
		c.Refused = unknown
		if unknown != nil {
			continue
		}
		c.lane = part.lane
		req := lua.ClaimRequest{UserID: c.UserID, Quantity: c.Quantity, Key: c.IdempotencyKey, Subjects: c.Subjects}
		c.Refused = part.lane.admit(s, &req, now)
		if c.Refused == nil && req.Key == "" {
			c.Refused = part.shard.refuse(req.Quantity, now)
		}
		if c.Refused == nil {
			c.ticket = w.Add(req)
			part.tickets = append(part.tickets, c.ticket)
		}
	}
}

// appendResults writes the answer, and counts the claims with the time
// they took. replays has a 1 for each replay and a 0 for each other
// claim; nil means no replays.
func (s *Routes) appendResults(out []byte, claims []batchClaim, took time.Duration) (_, replays []byte) {
	out = append(out, `{"results":[`...)
	for i := range claims {
		if i > 0 {
			out = append(out, ',')
		}
		c := &claims[i]
		if c.Refused == nil {
			c.Refused = c.lane.nameLimit(form.Refusal(c.ticket))
		}
		s.count(c, took)
		if p := c.Refused; p != nil {
			out = strconv.AppendInt(append(out, `{"status":`...), int64(p.GetStatus()), 10)
			out = append(p.Append(append(out, `,"problem":`...)), '}')
			continue
		}
		reply := &c.ticket.Reply
		if reply.Outcome == models.OutcomeReplayed {
			if replays == nil {
				replays = bytes.Repeat([]byte{'0'}, len(claims))
			}
			replays[i] = '1'
		}
		out = append(form.AppendClaim(append(out, `{"status":201,"claim":`...), &reply.Claim), '}')
	}
	return append(out, `]}`...), replays
}

func (s *Routes) count(c *batchClaim, took time.Duration) {
	var reply *lua.ClaimReply
	if c.Refused == nil {
		reply = &c.ticket.Reply
	}
	outcome := outcomeOf(reply, c.Refused)
	s.metrics.count(outcome)
	if c.lane != nil {
		c.lane.tally.count(outcome, took)
	}
}
