package apitest

import (
	"cmp"
	"context"
	"reflect"
	"sort"
	"strings"
	"time"

	"dibs/models"
)

// Create compares an existing campaign by total, name and limit.
func (r *Fake) Create(_ context.Context, c models.Campaign) (models.Campaign, bool, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Fail != nil {
		return models.Campaign{}, false, r.Fail
	}
	if there := r.Campaigns[c.ID]; there != nil {
		if there.Total != c.Total || there.Name != c.Name || there.PerUser != c.PerUser {
			return models.Campaign{}, false, models.ErrExists
		}
		return there.Campaign, false, nil
	}
	c.Version = 1
	c.Changes = 1
	return r.Put(c).Campaign, true, nil
}

// inMySQL requires r.Mu.
func (r *Fake) inMySQL(id string) (*Campaign, error) {
	if r.Fail != nil {
		return nil, r.Fail
	}
	c := r.Campaigns[id]
	if c == nil {
		return nil, models.ErrNotFound
	}
	return c, nil
}

// Get reads a campaign.
func (r *Fake) Get(_ context.Context, id string) (models.Campaign, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	c, err := r.inMySQL(id)
	if err != nil {
		return models.Campaign{}, err
	}
	return c.Campaign, nil
}

// List reads campaigns by id.
func (r *Fake) List(_ context.Context, q models.CampaignQuery) ([]models.Campaign, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Fail != nil {
		return nil, r.Fail
	}
	var page []models.Campaign
	for id, c := range r.Campaigns {
		isFound := strings.Contains(strings.ToLower(id+"\n"+c.Name), strings.ToLower(q.Text))
		if isFound && id > q.After && (q.Status == "" || q.Status == c.Status) {
			page = append(page, c.Campaign)
		}
	}
	sort.Slice(page, func(i, j int) bool { return page[i].ID < page[j].ID })
	return page[min(q.Offset, len(page)):][:min(q.Limit, len(page))], nil
}

// Count counts the campaigns of a query.
func (r *Fake) Count(ctx context.Context, q models.CampaignQuery) (int64, error) {
	q.Limit = 1 << 20
	q.Offset = 0
	all, err := r.List(ctx, q)
	return int64(len(all)), err
}

// Change changes a campaign.
func (r *Fake) Change(_ context.Context, id string, change models.Change) (models.Campaign, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	c, err := r.inMySQL(id)
	if err != nil {
		return models.Campaign{}, err
	}
	if !change.Fits(c.Version) {
		return models.Campaign{}, models.ErrChanged
	}
	after := c.Campaign
	change.Apply(&after)
	if reflect.DeepEqual(after, c.Campaign) {
		return after, nil
	}
	if err := after.Validate(); err != nil {
		return models.Campaign{}, err
	}
	after.Version += 1_000_000
	after.Changes++
	c.Campaign = after
	return after, nil
}

// AddPackets stores the batch and reports 7 packets of 77.
func (r *Fake) AddPackets(_ context.Context, id string, batch models.PacketBatch) (models.AddedPackets, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	c, err := r.inMySQL(id)
	switch {
	case err != nil:
		return models.AddedPackets{}, err
	case c.Status == models.StatusClosed:
		return models.AddedPackets{}, models.ErrClosed
	}
	if batch.Split == nil {
		if err := batch.CheckList(); err != nil {
			return models.AddedPackets{}, err
		}
	}
	for i := range c.Batches {
		if batch.Key != "" && c.Batches[i].Key == batch.Key {
			if !reflect.DeepEqual(batch, c.Batches[i]) {
				return models.AddedPackets{}, models.ErrKeyMismatch
			}
			return models.AddedPackets{Count: 7, Amount: 77, Replayed: true}, nil
		}
	}
	c.Batches = append(c.Batches, batch)
	return models.AddedPackets{Count: 7, Amount: 77}, nil
}

// Books sums the claims, less what the test removed.
func (r *Fake) Books(_ context.Context, id string) (models.Books, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	c, err := r.inMySQL(id)
	if err != nil {
		return models.Books{}, err
	}
	without := c.Lag + c.Lost
	return models.Books{
		Claimed: c.taken - without, SyncedSeq: c.seq - without, Sold: c.taken - without, Remaining: c.Total - c.taken + c.Lag - c.Shrunk,
		LostClaims: c.Lost, LostUnits: c.Lost,
		ParkedClaims: c.Parked, ParkedUnits: c.Parked, InRedis: !c.Evicted, Total: c.Total, LowStockAt: c.LowStockAt, At: Now,
		Version: c.Version, AppliedVersion: c.Version,
	}, nil
}

// Claim finds a claim.
func (r *Fake) Claim(ctx context.Context, id string) (models.Claim, error) {
	r.Looked.Add(1)
	all, err := r.ClaimsOf(ctx, models.ClaimsQuery{})
	for _, c := range all {
		if err == nil && c.ID == id {
			return c, nil
		}
	}
	return models.Claim{}, cmp.Or(err, models.ErrNotFound)
}

// ClaimsOf ignores pages.
func (r *Fake) ClaimsOf(_ context.Context, q models.ClaimsQuery) (found []models.Claim, err error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for _, c := range r.Campaigns {
		for _, row := range c.Rows {
			if q.UserID == "" || q.UserID == row.UserID {
				found = append(found, row)
			}
		}
	}
	return found, r.Fail
}

// ClaimsOfCampaign returns a campaign's claims.
func (r *Fake) ClaimsOfCampaign(_ context.Context, q models.CampaignClaimsQuery) (found []models.Claim, err error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	c := r.Campaigns[q.CampaignID]
	if c == nil {
		return nil, models.ErrNotFound
	}
	if q.After == "none" {
		return nil, models.ErrID
	}
	isAfter := q.After == ""
	for i := range c.Rows {
		row := &c.Rows[len(c.Rows)-1-i]
		if isAfter && len(found) < q.Limit && (q.Status == "" || q.Status == row.Status) {
			found = append(found, *row)
		}
		isAfter = isAfter || row.ID == q.After
	}
	return found, r.Fail
}

// Redeem answers as Resolved says, as do the other decisions.
func (r *Fake) Redeem(ctx context.Context, id, orderID string) (models.Resolution, error) {
	return r.resolve(ctx, id, "redeem "+orderID)
}

// Reopen is like Redeem.
func (r *Fake) Reopen(ctx context.Context, id, orderID, reason string) (models.Resolution, error) {
	return r.resolve(ctx, id, "reopen "+orderID+" "+reason)
}

// Extend is like Redeem.
func (r *Fake) Extend(ctx context.Context, id string, by time.Duration, _ string) (models.Resolution, error) {
	return r.resolve(ctx, id, "extend "+by.String())
}

// Release is like Redeem.
func (r *Fake) Release(ctx context.Context, id, reason string) (models.Resolution, error) {
	return r.resolve(ctx, id, "release "+reason)
}

func (r *Fake) resolve(ctx context.Context, id, decision string) (models.Resolution, error) {
	if r.Absent.Add(-1) >= 0 {
		return models.Resolution{}, models.ErrNotFound
	}
	was, err := r.Claim(ctx, id)
	if err != nil {
		return models.Resolution{}, err
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Decided = append(r.Decided, decision)
	return models.Resolution{Resolved: cmp.Or(r.Resolved, models.ResolvedNow), Claim: was}, nil
}

// AwaitApplied does not wait, because claims have their rows at
// once. OnAwait overrides it.
func (r *Fake) AwaitApplied(ctx context.Context) error {
	if r.OnAwait != nil {
		return r.OnAwait(ctx)
	}
	return r.fails()
}

// ShardsOf returns none: the Fake has only unsharded campaigns.
func (r *Fake) ShardsOf(_ context.Context, id string) (models.ShardsOf, error) {
	return models.ShardsOf{CampaignID: id, Shards: []models.ShardFigures{}}, r.fails()
}

// Refill reports enough units. OnRefill overrides it.
func (r *Fake) Refill(context.Context, string, models.Need) (models.Refill, error) {
	if r.OnRefill != nil {
		return r.OnRefill()
	}
	return models.Refill{}, r.fails()
}
