package lua

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"dibs/models"
)

const statusClosed = 1 // pause.lua's reply for a campaign that is closed

// Pause is a pause that MySQL is not asked for, of any number of campaigns.
type Pause struct {
	ID        string // a UUIDv7: that of a later one is greater
	Actor     string // who paused
	RequestID string // by which request
}

// Pause pauses lots, the live ones at once and the others before they are loaded, and has the claim stream tell MySQL. Again with the
// same id does no harm. The errors are those of the lots: models.ErrClosed, ErrDamaged, ErrUnavailable, ErrOutcomeUnknown.
func (s *Scripts) Pause(ctx context.Context, ids []string, p *Pause) []error {
	errs := make([]error, len(ids))
	calls := make([]call, len(ids))
	for i, id := range ids {
		campaignID, shard := models.SplitShardID(id)
		event := models.Event{
			V: models.EventVersion, Type: models.EventCampaignPaused, ID: uuid.NewString(), CampaignID: campaignID, Shard: shard,
			At: models.NewTime(s.opts.Clock()), PauseID: p.ID, Actor: p.Actor, RequestID: p.RequestID,
		}
		payload, err := json.Marshal(&event)
		if err != nil {
			errs[i] = fmt.Errorf("lua: pause %s: %w", id, err)
			return errs
		}
		k := s.KeysOf(id)
		calls[i] = call{[]string{k.State, k.Stream}, []any{p.ID, event.ID, payload}}
	}
	for i, a := range s.runPipelined(ctx, s.pause, calls) {
		errs[i] = a.err
		if a.err != nil {
			continue
		}
		switch code, err := status(s.pause.name, a.reply); {
		case err != nil:
			errs[i] = err
		case code == statusClosed:
			errs[i] = fmt.Errorf("lua: pause %s: %w", ids[i], models.ErrClosed)
		case code != statusOK:
			errs[i] = refusal(s.pause.name, ids[i], calls[i].keys, code, a.reply)
		}
	}
	return errs
}

// Pauses reads by which pause each lot is paused; "" is none, or one that its definition knows of. Errors as State.
func (s *Scripts) Pauses(ctx context.Context, ids []string) ([]string, error) {
	cmds := make([]*redis.SliceCmd, len(ids))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			cmds[i] = p.HMGet(ctx, s.KeysOf(id).State, "pause")
		}
		return nil
	})
	if err != nil {
		return nil, classifyError("hmget", err)
	}
	pauses := make([]string, len(ids))
	for i, cmd := range cmds {
		pauses[i], _ = cmd.Val()[0].(string)
	}
	return pauses, nil
}
