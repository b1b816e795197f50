package campaigns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"dibs/internal/caller"
	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/offset"
)

// pauseAgain is the pause between two checks whether MySQL has applied a
// pause.
const pauseAgain = 20 * time.Millisecond

// Pause pauses a campaign in Redis without MySQL, which gets it from
// the claim stream. It returns Redis' view of the campaign. Errors:
// models.ErrClosed, lua.ErrAbsent, and those of lua.Scripts.Pause.
func (r *Repository) Pause(ctx context.Context, id string) (models.Campaign, error) {
	st, ids, err := r.heldLots(ctx, id)
	if err != nil {
		return models.Campaign{}, fmt.Errorf("campaigns: pause %s: %w", id, err)
	}
	if err := errors.Join(r.pause(ctx, ids, known{})...); err != nil {
		return models.Campaign{}, err
	}
	return models.Campaign{
		ID: id, Kind: st.Meta.Kind, Status: models.StatusPaused, Shards: max(1, st.Meta.Shards),
		TimeZone: st.Meta.Location.String(), Currency: st.Meta.Currency, HoldForMs: st.Meta.HoldForMs,
		Version: st.Version, PerUser: st.PerUser, PerUserPerDay: st.PerDay, Limits: st.Limits(),
		ShardBy: st.Meta.ShardBy, LowStockAt: st.LowStockAt, Total: st.Total,
	}, nil
}

// heldLots returns all lots of a campaign, and the state of one that
// Redis has. Errors: lua.ErrAbsent, and those of State.
func (r *Repository) heldLots(ctx context.Context, id string) (lua.State, []string, error) {
	ids := append([]string{id}, models.ShardIDs(id, models.ShardsMax)...)
	positions, err := r.sender.scripts.Positions(ctx, ids)
	if err != nil {
		return lua.State{}, nil, err
	}
	held := slices.IndexFunc(positions, func(p lua.Position) bool { return p.Epoch > 0 })
	if held < 0 {
		return lua.State{}, nil, lua.ErrAbsent
	}
	st, err := r.sender.scripts.State(ctx, ids[held])
	return st, models.ShardIDs(id, st.Meta.Shards), err
}

// known is what MySQL says of the campaigns to be paused, if it answers.
type known struct {
	pause  string           // the latest
	madeMs map[string]int64 // when each was made
}

func (r *Repository) pause(ctx context.Context, lots []string, k known) []error {
	latest, madeMs := r.sender.scripts.LastPause(ctx, lots)
	id, err := pauseAfter(max(latest, k.pause))
	if err != nil {
		return []error{fmt.Errorf("campaigns: %w", err)}
	}
	maps.Copy(madeMs, k.madeMs)
	who := caller.Of(ctx)
	return r.sender.scripts.Pause(ctx, lots, &lua.Pause{ID: id, Actor: who.Actor, RequestID: who.RequestID, MadeMs: madeMs})
}

// pauseAfter makes the id of a pause after the latest one, which a
// process whose clock is ahead may have made.
func pauseAfter(latest string) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	before, err := uuid.Parse(latest)
	if err == nil && latest >= id.String() {
		var next [8]byte // the first 6 bytes are the time
		binary.BigEndian.PutUint64(next[:], binary.BigEndian.Uint64(before[:8])+1<<16)
		copy(id[:6], next[:6])
	}
	return id.String(), nil
}

// PauseAll pauses all open campaigns in Redis and returns the ids of
// the paused ones. Without MySQL these are the ones in Redis, and isAll
// is false. The others take no claims without MySQL, but are open
// afterwards. Errors are Redis'; the others are paused.
func (r *Repository) PauseAll(ctx context.Context, mysqlFor time.Duration) (paused []string, isAll bool, err error) {
	lots, k, isAll := r.openLots(ctx, mysqlFor)
	if !isAll {
		lots, err = r.sender.scripts.Held(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("campaigns: pause all: %w", err)
		}
		for _, lot := range slices.Clone(lots) { // some shards of a campaign may be away
			id, shard := models.SplitShardID(lot)
			if shard == 0 {
				continue
			}
			if st, err := r.sender.scripts.State(ctx, lot); err == nil {
				lots = append(lots, models.ShardIDs(id, st.Meta.Shards)...)
			}
		}
		slices.Sort(lots)
		lots = slices.Compact(lots)
	}
	var failed []error
	for i, err := range r.pause(ctx, lots, k) {
		switch {
		case err == nil:
			paused = append(paused, models.CampaignIDOf(lots[i]))
		case !errors.Is(err, models.ErrClosed):
			failed = append(failed, err)
		}
	}
	slices.Sort(paused)
	return slices.Compact(paused), isAll, errors.Join(failed...)
}

// openLots returns the lots of open campaigns.
// isKnown is false if MySQL does not answer.
func (r *Repository) openLots(ctx context.Context, within time.Duration) (lots []string, k known, isKnown bool) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var open []models.Definition
	err := r.db.WithContext(ctx).Table("definitions").Select("campaign_id, shards, pause_id, created_at").
		Where("status = ?", models.StatusOpen).Find(&open).Error
	if err != nil {
		return nil, known{}, false
	}
	k.madeMs = make(map[string]int64, len(open))
	for i := range open {
		d := &open[i]
		lots = append(lots, models.ShardIDs(d.CampaignID, d.Shards)...)
		k.madeMs[d.CampaignID] = d.CreatedAt.UnixMilli()
		if d.PauseID != nil {
			k.pause = max(k.pause, *d.PauseID)
		}
	}
	return lots, k, true
}

func (r *Repository) awaitPauses(ctx context.Context, c *models.Campaign) error {
	latest, absent, err := r.sender.scripts.Pauses(ctx, c)
	if err == nil && len(absent) > 0 { // a pause of these may be on its way
		err = offset.NewStreams(r.db, r.sender.scripts).AwaitPartitions(ctx, r.sender.partitionsOf(absent))
	}
	if err != nil {
		return fmt.Errorf("campaigns: open %s: %w", c.ID, err)
	}
	for latest != "" {
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
