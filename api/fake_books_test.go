package api_test

import (
	"cmp"
	"context"
	"reflect"
	"sort"

	"dibs/lua"
	"dibs/models"
)

func (r *fakeRoom) Create(_ context.Context, c models.Campaign) (models.Campaign, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return models.Campaign{}, false, r.fail
	}
	if there := r.campaigns[c.ID]; there != nil {
		if there.Total != c.Total || there.Name != c.Name || there.PerUser != c.PerUser {
			return models.Campaign{}, false, models.ErrExists
		}
		return there.Campaign, false, nil
	}
	c.Version = 1
	return r.put(c).Campaign, true, nil
}

func (r *fakeRoom) Get(_ context.Context, id string) (models.Campaign, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return models.Campaign{}, r.fail
	}
	c := r.campaigns[id]
	if c == nil {
		return models.Campaign{}, models.ErrNotFound
	}
	return c.Campaign, nil
}

func (r *fakeRoom) List(_ context.Context, after string, limit int) ([]models.Campaign, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return nil, r.fail
	}
	var page []models.Campaign
	for id, c := range r.campaigns {
		if id > after {
			page = append(page, c.Campaign)
		}
	}
	sort.Slice(page, func(i, j int) bool { return page[i].ID < page[j].ID })
	return page[:min(limit, len(page))], nil
}

func (r *fakeRoom) Change(_ context.Context, id string, change models.Change) (models.Campaign, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return models.Campaign{}, r.fail
	}
	c := r.campaigns[id]
	if c == nil {
		return models.Campaign{}, models.ErrNotFound
	}
	after := c.Campaign
	change.Apply(&after)
	if reflect.DeepEqual(after, c.Campaign) {
		return after, nil
	}
	if err := after.Validate(); err != nil {
		return models.Campaign{}, err
	}
	after.Version++
	c.Campaign = after
	return after, nil
}

func (r *fakeRoom) AddPackets(_ context.Context, id string, batch models.PacketBatch) (models.AddedPackets, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.campaigns[id]
	switch {
	case r.fail != nil:
		return models.AddedPackets{}, r.fail
	case c == nil:
		return models.AddedPackets{}, models.ErrNotFound
	case c.Status == models.StatusClosed:
		return models.AddedPackets{}, models.ErrClosed
	}
	if batch.Split == nil {
		if err := batch.CheckList(); err != nil {
			return models.AddedPackets{}, err
		}
	}
	for i := range c.batches {
		if batch.Key != "" && c.batches[i].Key == batch.Key {
			if !reflect.DeepEqual(batch, c.batches[i]) {
				return models.AddedPackets{}, models.ErrKeyMismatch
			}
			return models.AddedPackets{Count: 7, Amount: 77, Replayed: true}, nil
		}
	}
	c.batches = append(c.batches, batch)
	return models.AddedPackets{Count: 7, Amount: 77}, nil
}

func (r *fakeRoom) Books(_ context.Context, id string) (models.Books, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return models.Books{}, r.fail
	}
	c := r.campaigns[id]
	if c == nil {
		return models.Books{}, models.ErrNotFound
	}
	return models.Books{Claimed: c.taken - c.lag, SyncedSeq: c.seq - c.lag, Remaining: c.Total - c.taken + c.lag - c.shrunk, ParkedClaims: c.parked, ParkedUnits: c.parked}, nil
}

func (r *fakeRoom) Claim(ctx context.Context, id string) (models.Claim, error) {
	r.looked.Add(1)
	all, err := r.ClaimsOf(ctx, models.ClaimsQuery{})
	for _, c := range all {
		if err == nil && c.ID == id {
			return c, nil
		}
	}
	return models.Claim{}, cmp.Or(err, models.ErrNotFound)
}

// ClaimsOf knows of no pages.
func (r *fakeRoom) ClaimsOf(_ context.Context, q models.ClaimsQuery) (found []models.Claim, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.campaigns {
		for _, row := range c.rows {
			if q.UserID == "" || q.UserID == row.UserID {
				found = append(found, row)
			}
		}
	}
	return found, r.fail
}

// Redeem and Release play MySQL: claims that were answered have their rows.
func (r *fakeRoom) Redeem(ctx context.Context, id, orderID string) (models.Resolution, error) {
	return r.resolve(ctx, id, func(c *models.Claim) models.Resolved {
		switch {
		case c.Status == models.ClaimRedeemed && c.OrderID == orderID:
			return models.ResolvedBefore
		case c.Status == models.ClaimRedeemed:
			return models.ResolvedAlreadyRedeemed
		case c.Status != models.ClaimClaimed:
			return models.ResolvedAlreadyReleased
		}
		c.Status, c.OrderID, c.RedeemedAt = models.ClaimRedeemed, orderID, &c.ClaimedAt
		return models.ResolvedNow
	})
}

func (r *fakeRoom) Release(ctx context.Context, id, reason string) (models.Resolution, error) {
	return r.resolve(ctx, id, func(c *models.Claim) models.Resolved {
		switch c.Status {
		case models.ClaimRedeemed:
			return models.ResolvedAlreadyRedeemed
		case models.ClaimReleased, models.ClaimExpired:
			return models.ResolvedBefore
		}
		c.Status, c.ReleaseReason, c.ReleasedAt = models.ClaimReleased, reason, &c.ClaimedAt
		return models.ResolvedNow
	})
}

func (r *fakeRoom) resolve(ctx context.Context, id string, decide func(c *models.Claim) models.Resolved) (models.Resolution, error) {
	if r.absent.Add(-1) >= 0 {
		return models.Resolution{}, models.ErrNotFound
	}
	was, err := r.Claim(ctx, id)
	if err != nil {
		return models.Resolution{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.campaigns[was.CampaignID]
	if c.Kind == models.KindPacket {
		return models.Resolution{Resolved: models.ResolvedPacket, Claim: was}, nil
	}
	resolved := decide(&was)
	for i := range c.rows {
		if c.rows[i].ID == id {
			c.rows[i] = was
		}
	}
	return models.Resolution{Resolved: resolved, Claim: was}, nil
}

func (r *fakeRoom) Partitions() int { return 1 }

func (r *fakeRoom) Unread(context.Context, int, string) (lua.Unread, error) {
	return lua.Unread{NoGroup: true}, nil
}

func (r *fakeRoom) Entries(context.Context, int, lua.EntryID, int) ([]lua.Entry, error) {
	return nil, nil
}
