package campaigns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"dibs/internal/caller"
	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
)

// pauseAgain is how long whoever opens a campaign waits before it looks again whether MySQL knows of a pause.
const pauseAgain = 20 * time.Millisecond

// Pause pauses a campaign in Redis, without MySQL, which is told by the claim stream. It returns what Redis knows of the campaign. Errors:
// models.ErrClosed, lua.ErrAbsent (Redis holds nothing of it), and those of lua.Scripts.Pause.
func (r *Repository) Pause(ctx context.Context, id string) (models.Campaign, error) {
	st, ids, err := r.heldLots(ctx, id)
	if err != nil {
		return models.Campaign{}, fmt.Errorf("campaigns: pause %s: %w", id, err)
	}
	if err := errors.Join(r.pause(ctx, ids)...); err != nil {
		return models.Campaign{}, err
	}
	return models.Campaign{
		ID: id, Kind: st.Meta.Kind, Status: models.StatusPaused, Shards: max(1, st.Meta.Shards), TimeZone: st.Meta.Location.String(),
		Currency: st.Meta.Currency, HoldForMs: st.Meta.HoldForMs, Version: st.Version, PerUser: st.PerUser, PerUserPerDay: st.PerDay,
		Limits: st.Limits(), ShardBy: st.Meta.ShardBy, LowStockAt: st.LowStockAt, Total: st.Total,
	}, nil
}

// heldLots are the lots of a campaign of which Redis holds one, and the state of that. Errors: lua.ErrAbsent, and those of State.
func (r *Repository) heldLots(ctx context.Context, id string) (lua.State, []string, error) {
	may := append([]string{id}, models.ShardIDs(id, models.ShardsMax)...)
	places, err := r.applier.scripts.Positions(ctx, may)
	if err != nil {
		return lua.State{}, nil, err
	}
	held := slices.IndexFunc(places, func(p lua.Position) bool { return p.Epoch > 0 })
	if held < 0 {
		return lua.State{}, nil, lua.ErrAbsent
	}
	st, err := r.applier.scripts.State(ctx, may[held])
	return st, models.ShardIDs(id, st.Meta.Shards), err
}

func (r *Repository) pause(ctx context.Context, lots []string) []error {
	id, err := uuid.NewV7()
	if err != nil {
		return []error{fmt.Errorf("campaigns: %w", err)}
	}
	who := caller.Of(ctx)
	return r.applier.scripts.Pause(ctx, lots, &lua.Pause{ID: id.String(), Actor: who.Actor, RequestID: who.RequestID})
}

// PauseAll pauses every campaign that is open, in Redis, as Pause does, and names those that are paused now. Where MySQL does not answer
// these are the ones that Redis holds, and isAll is false: the others take no claims before MySQL is back, and are open then. Errors: of
// Redis, for any of them; the others are paused.
func (r *Repository) PauseAll(ctx context.Context, mysqlFor time.Duration) (paused []string, isAll bool, err error) {
	lots, isAll := r.openLots(ctx, mysqlFor)
	if !isAll {
		lots, err = r.applier.scripts.Held(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("campaigns: pause all: %w", err)
		}
		for _, lot := range slices.Clone(lots) { // of a campaign some shards may be away
			id, shard := models.SplitShardID(lot)
			if shard == 0 {
				continue
			}
			if st, err := r.applier.scripts.State(ctx, lot); err == nil {
				lots = append(lots, models.ShardIDs(id, st.Meta.Shards)...)
			}
		}
		slices.Sort(lots)
		lots = slices.Compact(lots)
	}
	var failed []error
	for i, err := range r.pause(ctx, lots) {
		switch {
		case err == nil:
			id, _ := models.SplitShardID(lots[i])
			paused = append(paused, id)
		case !errors.Is(err, models.ErrClosed):
			failed = append(failed, err)
		}
	}
	slices.Sort(paused)
	return slices.Compact(paused), isAll, errors.Join(failed...)
}

// openLots are the lots of the campaigns that are open by MySQL; false: it does not answer.
func (r *Repository) openLots(ctx context.Context, within time.Duration) (lots []string, isKnown bool) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var open []struct {
		CampaignID string
		Shards     int
	}
	err := r.db.WithContext(ctx).Table("definitions").Select("campaign_id, shards").Where("status = ?", models.StatusOpen).Find(&open).Error
	for _, c := range open {
		lots = append(lots, models.ShardIDs(c.CampaignID, c.Shards)...)
	}
	return lots, err == nil
}

// awaitPauses waits until MySQL knows of the pauses of a campaign that is to be opened.
func (r *Repository) awaitPauses(ctx context.Context, c *models.Campaign) error {
	pauses, err := r.applier.scripts.Pauses(ctx, c.ShardIDs())
	if err != nil {
		return err
	}
	for latest := slices.Max(pauses); latest != ""; {
		now, err := r.Get(ctx, c.ID)
		if err != nil || now.PauseID != nil && *now.PauseID >= latest {
			return err
		}
		if err := sleep.For(ctx, pauseAgain); err != nil {
			return fmt.Errorf("campaigns: open %s: a pause is on its way to MySQL: %w", c.ID, err)
		}
	}
	return nil
}
