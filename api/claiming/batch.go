package claiming

import (
	"context"
	"net/http"
	"strconv"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

// batchResult is the result of one claim of a batch, as the OpenAPI document has it.
type batchResult struct {
	Status  int               `json:"status" doc:"the HTTP status that the claim route gives"`
	Claim   *models.Claim     `json:"claim,omitempty"`
	Problem *wire.ProblemJSON `json:"problem,omitempty"`
}

// batchResults is the answer to claims:batch, as the OpenAPI document has it.
type batchResults struct {
	Results []batchResult `json:"results" nullable:"false"`
}

// postBatch is POST /v1/claims:batch.
func (s *Routes) PostBatch(w http.ResponseWriter, r *http.Request) int {
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	var p *wire.Problem
	if *buf, p = wire.ReadJSON(r, *buf, BatchBodyMax); p != nil {
		return p.Write(w)
	}
	claims, p := decodeBatch(*buf)
	if p != nil {
		return p.Write(w)
	}
	b := s.newBatch(r.Context(), claims)
	if len(b.party.tickets) > 0 {
		<-b.party.done
	}
	body, replays := s.appendResults((*buf)[:0], b)
	*buf = body
	h := w.Header()
	h["Content-Type"] = wire.JSONContentType
	if replays == len(claims) {
		h[wire.ReplayedHeader] = wire.ReplayedTrue
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // a client that is gone asks again with its keys
	return http.StatusOK
}

// batch is the claims of one POST on their way. refused and tickets go by the claims' places: each has one of the two.
type batch struct {
	claims  []batchClaim
	refused []*wire.Problem
	tickets []*ticket // of the party
	party   party
	parts   []batchPart
}

// batchPart is the claims of one campaign, in order, and the desk that takes them, or why there is none.
type batchPart struct {
	campaignID string
	places     []int
	desk       *desk
	err        error
}

// lookupsAtOnce bounds the campaigns of one batch that are looked up at the same time.
const lookupsAtOnce = 8

// newBatch sorts the claims by campaign, refuses what needs no asking and queues the rest.
func (s *Routes) newBatch(ctx context.Context, claims []batchClaim) *batch {
	b := &batch{
		claims: claims, refused: make([]*wire.Problem, len(claims)), tickets: make([]*ticket, len(claims)),
		party: party{ctx: ctx, tickets: make([]ticket, 0, len(claims)), done: make(chan struct{}, 1)},
	}
	b.sort()
	s.lookUp(ctx, b.parts)
	for i := range b.parts {
		s.admit(b, &b.parts[i])
	}
	if len(b.party.tickets) == 0 {
		return b
	}
	b.party.open.Store(int32(len(b.party.tickets)))
	for _, part := range b.parts {
		if queue := b.of(part.places); len(queue) > 0 {
			part.desk.combiner.submit(queue)
		}
	}
	return b
}

func (b *batch) sort() {
	byID := make(map[string]int)
	for i := range b.claims {
		c := &b.claims[i]
		if b.refused[i] = c.refused; c.refused != nil {
			continue
		}
		at, ok := byID[c.CampaignID]
		if !ok {
			at = len(b.parts)
			byID[c.CampaignID] = at
			b.parts = append(b.parts, batchPart{campaignID: c.CampaignID})
		}
		b.parts[at].places = append(b.parts[at].places, i)
	}
}

// lookUp finds the desks of a batch, all within the time that one may take: campaigns that can't be found now must not
// keep the others from being claimed.
func (s *Routes) lookUp(ctx context.Context, parts []batchPart) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.LookupTimeout)
	defer cancel()
	now := s.cfg.Clock()
	var lookups errgroup.Group
	lookups.SetLimit(lookupsAtOnce)
	for i := range parts {
		part := &parts[i]
		if part.desk = s.desks.known(part.campaignID, now); part.desk == nil {
			lookups.Go(func() error {
				part.desk, part.err = s.desks.of(ctx, part.campaignID, now)
				return nil
			})
		}
	}
	_ = lookups.Wait() // each part has its own error
}

// admit makes tickets for the claims of one campaign that have to be asked for.
func (s *Routes) admit(b *batch, part *batchPart) {
	now := s.cfg.Clock()
	d := part.desk
	if part.err != nil {
		code := s.codeOfLookup(part.campaignID, part.err)
		for _, i := range part.places {
			b.refused[i] = &wire.Problem{Code: code}
		}
		return
	}
	for _, i := range part.places {
		c := &b.claims[i]
		if b.refused[i] = s.limitedOrSoldOut(d, c, now); b.refused[i] != nil {
			continue
		}
		claimID, err := uuid.NewV7()
		if err != nil {
			b.refused[i] = &wire.Problem{Code: wire.CodeUnavailable}
			continue
		}
		b.party.tickets = append(b.party.tickets, ticket{
			party: &b.party,
			req:   lua.ClaimRequest{ID: claimID, UserID: c.UserID, Quantity: c.Quantity, Key: c.IdempotencyKey},
		})
		b.tickets[i] = &b.party.tickets[len(b.party.tickets)-1] // never moves: it has room for all
	}
}

// of picks the tickets at the given places.
func (b *batch) of(places []int) []*ticket {
	picked := make([]*ticket, 0, len(places))
	for _, i := range places {
		if b.tickets[i] != nil {
			picked = append(picked, b.tickets[i])
		}
	}
	return picked
}

// appendResults writes the answer and counts the replays in it.
func (s *Routes) appendResults(out []byte, b *batch) (_ []byte, replays int) {
	out = append(out, `{"results":[`...)
	for i := range b.claims {
		if i > 0 {
			out = append(out, ',')
		}
		p := b.problem(i)
		if p != nil {
			s.metrics.became(string(p.Code))
			out = append(out, `{"status":`...)
			out = strconv.AppendInt(out, int64(p.GetStatus()), 10)
			out = append(out, `,"problem":`...)
			out = append(wire.AppendProblem(out, p), '}')
			continue
		}
		reply := &b.tickets[i].answer.reply
		s.metrics.became(string(reply.Outcome))
		if reply.Outcome == models.OutcomeReplayed {
			replays++
		}
		out = append(out, `{"status":201,"claim":`...)
		out = append(appendClaim(out, &reply.Claim), '}')
	}
	return append(out, `]}`...), replays
}

// problem is the refusal of the claim at place i, nil when the user holds it.
func (b *batch) problem(i int) *wire.Problem {
	if b.refused[i] != nil {
		return b.refused[i]
	}
	code := b.tickets[i].answer.code()
	if code == "" {
		return nil
	}
	if p := unknownClaim(code, &b.tickets[i].req); p != nil {
		return p
	}
	return &wire.Problem{Code: code}
}
