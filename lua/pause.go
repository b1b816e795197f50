package lua

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"dibs/models"
	"dibs/models/event"
)

const statusClosed = 1 // pause.lua: the campaign is closed

// Pause is a pause of any number of campaigns, made without MySQL.
type Pause struct {
	ID        string // a UUIDv7, so a later one is greater
	Actor     string // who paused
	RequestID string // by which request
	// MadeMs is when campaigns were made, by id, for lots that Redis lacks.
	MadeMs map[string]int64
}

// Pause pauses lots, those that are away before they are loaded, and appends
// it to the claim stream for MySQL. It is idempotent by id. Errors, by lot:
// models.ErrClosed, ErrDamaged, ErrUnavailable, ErrOutcomeUnknown.
func (s *Scripts) Pause(ctx context.Context, ids []string, p *Pause) []error {
	errs := make([]error, len(ids))
	calls := make([]call, len(ids))
	for i, id := range ids {
		campaignID, shard := models.SplitShardID(id)
		event := event.Event{
			V: event.Version, Type: event.CampaignPaused, ID: uuid.NewString(), CampaignID: campaignID,
			Shard: shard, At: s.at(), PauseID: p.ID, Actor: p.Actor, RequestID: p.RequestID,
		}
		payload, err := json.Marshal(&event)
		if err != nil {
			errs[i] = fmt.Errorf("lua: pause %s: %w", id, err)
			return errs
		}
		k := s.KeysOf(id)
		calls[i] = call{[]string{k.State, k.Stream}, []any{p.ID, event.ID, payload, p.MadeMs[campaignID]}}
	}
	for i, a := range s.runPipelined(ctx, "pause", calls) {
		switch {
		case a.err != nil:
			errs[i] = a.err
		case a.code == statusClosed:
			errs[i] = fmt.Errorf("lua: pause %s: %w", ids[i], models.ErrClosed)
		case a.code != statusOK:
			errs[i] = refusal("pause", ids[i], calls[i].keys, a.code, a.reply)
		}
	}
	return errs
}

// LastPause returns the latest pause that lots or their definitions have, ""
// for none, and when their campaigns were made. Lots that do not answer count
// as none.
func (s *Scripts) LastPause(ctx context.Context, ids []string) (latest string, madeMs map[string]int64) {
	cmds := make([]*redis.SliceCmd, len(ids))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, id := range ids {
			cmds[i] = p.HMGet(ctx, s.KeysOf(id).State, "pause", "known_pause", "made_ms")
		}
		return nil
	})
	madeMs = make(map[string]int64)
	for i, cmd := range cmds {
		if cmd.Err() != nil {
			continue
		}
		for _, field := range cmd.Val()[:2] {
			pause, _ := field.(string)
			latest = max(latest, pause)
		}
		made, _ := cmd.Val()[2].(string)
		if ms, err := strconv.ParseInt(made, 10, 64); err == nil {
			madeMs[models.CampaignIDOf(ids[i])] = ms
		}
	}
	return latest, madeMs
}

// Pauses returns the latest pause of a campaign's lots, "" for none or one
// known to its definition, and the lots that Redis lacks: only their streams
// have pauses. So it is if Redis kept a deleted campaign of the id. Errors as
// State.
func (s *Scripts) Pauses(ctx context.Context, c *models.Campaign) (latest string, absent []string, err error) {
	ids := c.ShardIDs()
	cmds := make([]*redis.SliceCmd, len(ids))
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			cmds[i] = p.HMGet(ctx, s.KeysOf(id).State, "pause", "status", "made_ms")
		}
		return nil
	})
	if err != nil {
		return "", nil, classifyError("hmget", err)
	}
	for i, cmd := range cmds {
		pause, _ := cmd.Val()[0].(string)
		made, isKnown := cmd.Val()[2].(string)
		if cmd.Val()[1] == nil || isKnown && made != formatInt(madeMs(c)) {
			absent = append(absent, ids[i])
			continue
		}
		latest = max(latest, pause)
	}
	return latest, absent, nil
}
