package api_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"dibs/api"
	"dibs/lua"
	"dibs/models"
)

// fakeRoom plays Redis and MySQL: campaigns, their claims by key, and what each call should answer.
type fakeRoom struct {
	mu        sync.Mutex
	campaigns map[string]*fakeCampaign
	calls     [][]lua.ClaimRequest
	hydrates  int
	states    int

	// claim, when set, answers instead of the fake's own sums.
	claim  func(ctx context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error)
	absent atomic.Int64 // so many resolutions don't find the row
	// fail is what MySQL's side answers.
	fail error
	// hydrateFails is what the Hydrator alone answers.
	hydrateFails error
	ready        error

	looked atomic.Int64 // claims looked for
}

type fakeCampaign struct {
	models.Campaign
	inRedis bool
	taken   int64
	seq     int64
	byKey   map[string]lua.ClaimRequest
	first   map[string]models.Claim
	users   map[string]int64
	rows    []models.Claim
	lag     int64 // claims that MySQL lacks
	shrunk  int64 // units that somebody took out of MySQL's remaining
	parked  int64 // of these
	batches []models.PacketBatch
}

var fakeNow = time.Date(2027, 3, 14, 15, 9, 26, 535e6, time.UTC)

func newRoom(campaigns ...models.Campaign) *fakeRoom {
	r := &fakeRoom{campaigns: map[string]*fakeCampaign{}}
	for _, c := range campaigns {
		r.put(c).inRedis = true
	}
	return r
}

func (r *fakeRoom) put(c models.Campaign) *fakeCampaign {
	if c.Kind == "" {
		c.Kind = models.KindCoupon
	}
	if c.Status == "" {
		c.Status = models.StatusOpen
	}
	if c.TimeZone == "" {
		c.TimeZone = "UTC"
	}
	c.CreatedAt, c.UpdatedAt = fakeNow, fakeNow
	f := &fakeCampaign{Campaign: c, byKey: map[string]lua.ClaimRequest{}, first: map[string]models.Claim{}, users: map[string]int64{}}
	r.campaigns[c.ID] = f
	return f
}

func (r *fakeRoom) ClaimAfter(ctx context.Context, m lua.Meta, _ lua.Position, reqs []lua.ClaimRequest) ([]lua.ClaimReply, lua.CampaignView, error) {
	replies, remaining, err := r.claimNow(ctx, m, reqs)
	return replies, lua.CampaignView{Remaining: remaining}, err
}

func (r *fakeRoom) Recover(ctx context.Context, id string, _ lua.Position) (lua.Meta, error) {
	return r.Hydrate(ctx, id)
}

func (r *fakeRoom) claimNow(ctx context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
	r.mu.Lock()
	r.calls = append(r.calls, append([]lua.ClaimRequest(nil), reqs...))
	claim := r.claim
	r.mu.Unlock()
	if claim != nil {
		return claim(ctx, m, reqs)
	}
	return r.sums(m, reqs)
}

func (r *fakeRoom) sums(m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	replies := make([]lua.ClaimReply, len(reqs))
	c := r.campaigns[m.ID]
	for i := range reqs {
		if c == nil || !c.inRedis {
			replies[i].Outcome = models.OutcomeAbsent
			continue
		}
		replies[i] = c.take(&reqs[i])
	}
	if c == nil {
		return replies, 0, nil
	}
	return replies, max(0, c.Total-c.taken), nil
}

func (c *fakeCampaign) take(req *lua.ClaimRequest) lua.ClaimReply {
	if was, ok := c.byKey[req.Key]; ok && req.Key != "" {
		if was.UserID != req.UserID || was.Quantity != req.Quantity {
			return lua.ClaimReply{Outcome: models.OutcomeIdempotencyMismatch}
		}
		return lua.ClaimReply{Outcome: models.OutcomeReplayed, Claim: c.first[req.Key]}
	}
	switch {
	case c.Status == models.StatusPaused:
		return lua.ClaimReply{Outcome: models.OutcomePaused}
	case c.Status == models.StatusClosed:
		return lua.ClaimReply{Outcome: models.OutcomeClosed}
	case c.taken+req.Quantity > c.Total:
		return lua.ClaimReply{Outcome: models.OutcomeSoldOut}
	case c.PerUser > 0 && c.users[req.UserID]+req.Quantity > c.PerUser:
		return lua.ClaimReply{Outcome: models.OutcomeUserLimit}
	}
	c.taken += req.Quantity
	c.users[req.UserID] += req.Quantity
	c.seq++
	claim := models.Claim{
		ID: req.ID.String(), CampaignID: c.ID, UserID: req.UserID, Quantity: req.Quantity, Seq: c.seq,
		Status: models.ClaimClaimed, ClaimedAt: models.NewTime(fakeNow),
	}
	c.byKey[req.Key], c.first[req.Key] = *req, claim
	c.rows = append(c.rows, claim)
	return lua.ClaimReply{Outcome: models.OutcomeClaimed, Claim: claim}
}

func (r *fakeRoom) State(_ context.Context, id string) (lua.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states++
	c := r.campaigns[id]
	if c == nil || !c.inRedis {
		return lua.State{}, lua.ErrAbsent
	}
	return lua.State{
		Meta: c.meta(), Status: c.Status, Version: c.Version, Total: c.Total, Taken: c.taken, Seq: c.seq, LowStockAt: c.LowStockAt,
		AsOf: fakeNow,
	}, nil
}

func (c *fakeCampaign) meta() lua.Meta {
	zone, _ := c.Location()
	return lua.Meta{ID: c.ID, Kind: c.Kind, Location: zone, HoldForMs: c.HoldForMs}
}

func (r *fakeRoom) Hydrate(_ context.Context, id string) (lua.Meta, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hydrates++
	if r.fail != nil || r.hydrateFails != nil {
		return lua.Meta{}, errors.Join(r.fail, r.hydrateFails)
	}
	c := r.campaigns[id]
	if c == nil {
		return lua.Meta{}, models.ErrNotFound
	}
	c.inRedis = true
	return c.meta(), nil
}

// The fake's claims have their rows at once, so its streams are empty.

func (r *fakeRoom) deps() api.Deps {
	return api.Deps{
		Claimer: r, States: r, Hydrator: r, Campaigns: r, Claims: r, Resolver: r, Streams: r, Ready: func(context.Context) error { return r.ready },
	}
}

// sent is the claims that reached the claimer.
func (r *fakeRoom) sent() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.calls {
		n += len(call)
	}
	return n
}
