package apitest

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

// Fake stands in for Redis and MySQL: campaigns, their claims by
// key, and preset replies.
type Fake struct {
	Mu         sync.Mutex
	Campaigns  map[string]*Campaign
	Calls      [][]lua.ClaimRequest
	Loads      int
	Used       map[string]bool // ids passed to UseOnce
	StateReads int

	// OnClaim, when set, replaces the fake's own counting.
	OnClaim func(ctx context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error)
	// OnAwait, when set, is called by AwaitApplied.
	OnAwait func(ctx context.Context) error
	// OnRefill, when set, replaces Refill.
	OnRefill func() (models.Refill, error)
	Absent   atomic.Int64 // this many resolutions miss the row
	// Fail is the error of MySQL's side.
	Fail error
	// LoadFails is an error of the Loader only.
	LoadFails  error
	Ready      error
	RedisFails error                       // Redis's error for watchers
	RedisAway  map[string]error            // the same for one campaign or shard
	Answers    map[string]map[string]int64 // as of softstate.Answers, by campaign

	Looked atomic.Int64 // claim look-ups

	Resolved models.Resolved // the answer to decisions, ResolvedNow if empty
	Decided  []string        // decisions that were asked for

	Audit  *Audit
	Groups *Groups
}

// Campaign is a campaign and its claims.
type Campaign struct {
	models.Campaign
	InRedis bool
	Moved   lua.Shares // of a shard
	Evicted bool       // by MySQL's record
	taken   int64
	seq     int64
	byKey   map[string]lua.ClaimRequest
	first   map[string]models.Claim
	users   map[string]int64
	Rows    []models.Claim
	Lag     int64 // claims that MySQL lacks
	Lost    int64 // claims that Redis lost, of those that it counts
	Shrunk  int64 // units removed from MySQL's remaining
	Parked  int64 // parked units and claims
	Batches []models.PacketBatch
}

// Now is the time of every event.
var Now = time.Date(2027, 3, 14, 15, 9, 26, 535e6, time.UTC)

// NewFake makes a Fake with these campaigns in Redis.
func NewFake(campaigns ...models.Campaign) *Fake {
	r := &Fake{Used: map[string]bool{}, Campaigns: map[string]*Campaign{}, Audit: &Audit{}, Groups: &Groups{}}
	for _, c := range campaigns {
		r.Put(c).InRedis = true
	}
	return r
}

// Put adds a campaign that is not in Redis.
func (r *Fake) Put(c models.Campaign) *Campaign {
	if c.Kind == "" {
		c.Kind = models.KindCoupon
	}
	if c.Status == "" {
		c.Status = models.StatusOpen
	}
	if c.TimeZone == "" {
		c.TimeZone = "UTC"
	}
	c.CreatedAt = Now
	c.UpdatedAt = Now
	f := &Campaign{Campaign: c, byKey: map[string]lua.ClaimRequest{}, first: map[string]models.Claim{}, users: map[string]int64{}}
	r.Campaigns[c.ID] = f
	return f
}

// ClaimAfter ignores positions.
func (r *Fake) ClaimAfter(ctx context.Context, m lua.Meta, _ lua.Position, reqs []lua.ClaimRequest) (
	[]lua.ClaimReply, lua.CampaignView, error,
) {
	replies, remaining, err := r.claimNow(ctx, m, reqs)
	return replies, lua.CampaignView{Remaining: remaining}, err
}

// Recover is Load.
func (r *Fake) Recover(ctx context.Context, id string, _ lua.Position) (lua.Meta, error) {
	return r.Load(ctx, id)
}

func (r *Fake) claimNow(ctx context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
	r.Mu.Lock()
	r.Calls = append(r.Calls, append([]lua.ClaimRequest(nil), reqs...))
	claim := r.OnClaim
	r.Mu.Unlock()
	if claim != nil {
		return claim(ctx, m, reqs)
	}
	return r.Sums(m, reqs)
}

// Sums makes claims by the Fake's own counting.
func (r *Fake) Sums(m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	replies := make([]lua.ClaimReply, len(reqs))
	c := r.Campaigns[m.ID]
	for i := range reqs {
		if c == nil || !c.InRedis {
			replies[i].Outcome = models.OutcomeAbsent
			continue
		}
		replies[i] = c.Take(&reqs[i])
	}
	if c == nil {
		return replies, 0, nil
	}
	return replies, max(0, c.Total-c.taken), nil
}

// Take makes one claim.
func (c *Campaign) Take(req *lua.ClaimRequest) lua.ClaimReply {
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
		limit := models.Limit{By: models.ByUser, Per: models.PerAll}
		return lua.ClaimReply{Outcome: models.OutcomeUserLimit, Limit: &lua.LimitHit{Limit: limit}}
	}
	c.taken += req.Quantity
	c.users[req.UserID] += req.Quantity
	c.seq++
	claim := models.Claim{
		ID: req.ID.String(), CampaignID: c.ID, UserID: req.UserID, Quantity: req.Quantity, Seq: c.seq,
		Status: models.ClaimClaimed, ClaimedAt: models.NewTime(Now),
	}
	c.byKey[req.Key] = *req
	c.first[req.Key] = claim
	c.Rows = append(c.Rows, claim)
	return lua.ClaimReply{Outcome: models.OutcomeClaimed, Claim: claim}
}

// State returns Redis's state.
func (r *Fake) State(_ context.Context, id string) (lua.State, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.StateReads++
	c := r.Campaigns[id]
	if c == nil || !c.InRedis {
		return lua.State{}, lua.ErrAbsent
	}
	return lua.State{
		Shares: c.Moved,
		Meta:   c.meta(), Status: c.Status, Epoch: c.Epoch, Version: c.Version, Total: c.Total,
		Taken: c.taken, Seq: c.seq, Sold: c.taken, LowStockAt: c.LowStockAt, PerUser: c.PerUser, PerDay: c.PerUserPerDay,
		AsOf: Now,
	}, nil
}

func (c *Campaign) meta() lua.Meta {
	zone, _ := c.Location()
	return lua.Meta{ID: c.ID, Kind: c.Kind, Location: zone, HoldForMs: c.HoldForMs, Shards: c.Shards, MadeMs: c.CreatedAt.UnixMilli()}
}

// Load loads a campaign into Redis.
func (r *Fake) Load(_ context.Context, id string) (lua.Meta, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Loads++
	if r.Fail != nil || r.LoadFails != nil {
		return lua.Meta{}, errors.Join(r.Fail, r.LoadFails)
	}
	c := r.Campaigns[id]
	if c == nil {
		return lua.Meta{}, models.ErrNotFound
	}
	c.InRedis = true
	return c.meta(), nil
}

// Delete deletes a campaign.
func (r *Fake) Delete(_ context.Context, id string) error {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	c, err := r.inMySQL(id)
	switch {
	case err != nil:
		return err
	case c.seq > 0:
		return models.ErrClaimed
	}
	delete(r.Campaigns, id)
	return nil
}

// UseOnce never forgets an id.
func (r *Fake) UseOnce(_ context.Context, id string, _ time.Duration) (bool, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Used[id] {
		return false, nil
	}
	r.Used[id] = true
	return true, nil
}

// Deps uses this Fake for every dependency.
func (r *Fake) Deps() api.Deps {
	return api.Deps{
		Claimer: r, States: r, Shared: r, Loader: r, Campaigns: r, Books: r, Mover: r,
		Claims: r, Resolver: r, Applied: r, Audit: r.Audit, Groups: r.Groups,
		Ledger: Ledger{},
		Ready:  func(context.Context) error { return r.Ready },
	}
}

// Sent counts the claims that reached the claimer.
func (r *Fake) Sent() (n int) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for _, call := range r.Calls {
		n += len(call)
	}
	return n
}
