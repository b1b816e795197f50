package lua

import (
	"context"
	"fmt"
	"time"

	"dibs/models"
)

const (
	statusThere      = 1 // load.lua's reply when Redis holds the campaign already
	statusIncomplete = 3 // load.lua's reply when not all staged records are there
	statusBehind     = 4 // load.lua's reply when the campaign is behind its tombstone
)

// Load writes a campaign without claims to Redis, whole or not at all. loaded is false when Redis holds the campaign already; then
// nothing was changed. Errors: ErrBehindTombstone, ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (safe to send again).
func (s *Scripts) Load(ctx context.Context, c *models.Campaign) (loaded bool, err error) {
	return s.loadStaged(ctx, c, &staged{})
}

// staged counts what was staged for a load.
type staged struct {
	replace     bool
	users, keys int64 // fields
	taken, seq  int64
	released    int64 // claims
	shares      Shares
}

func (s *Scripts) loadStaged(ctx context.Context, c *models.Campaign, st *staged) (loaded bool, err error) {
	do := s.loadCall(c, st)
	reply, err := s.run(ctx, s.load, do.keys, do.args)
	if err != nil {
		return false, err
	}
	return readLoad(c, do.keys, reply)
}

func (s *Scripts) loadCall(c *models.Campaign, st *staged) call {
	k := s.KeysOf(c.ID)
	stagedUsers, stagedKeys := k.staged(c.Epoch)
	keys := []string{k.State, k.Users, k.Keys, k.Evicted, stagedUsers, stagedKeys, k.Waves, k.Moves}
	replace := 0
	if st.replace {
		replace = 1
	}
	args := append([]any{s.serverNow(), c.Epoch, replace, st.users, st.keys}, fixed(c)...)
	args = append(args, "taken", st.taken, "seq", st.seq, "released", st.released, "version", c.Version)
	if models.IsShardID(c.ID) {
		args = append(args, "out", st.shares.Out, "in", st.shares.In, "ups", 0, "shards", c.Shards, "shard_by", c.ShardBy)
	}
	switch {
	case c.Kind == models.KindPacket:
		args = append(args, "total", st.taken, "pushed", 0) // Push brings the packets that no one took
	case models.IsShardID(c.ID):
		args = append(args, "total", c.Total) // nothing else sets it, but debits and credits
	}
	return call{keys, append(args, definition(c)...)}
}

// readLoad reads a reply of load.lua.
func readLoad(c *models.Campaign, keys []string, reply []any) (loaded bool, err error) {
	code, err := status("load", reply)
	if err != nil {
		return false, err
	}
	switch code {
	case statusOK:
		return true, nil
	case statusThere:
		return false, nil
	case statusIncomplete:
		return false, fmt.Errorf("%w: load %s: staged records are gone", ErrUnavailable, c.ID)
	case statusBehind:
		return false, fmt.Errorf("%w: %s: epoch:seq %.100v", ErrBehindTombstone, c.ID, reply[1:])
	default:
		return false, damaged("load", keys, reply)
	}
}

// fixed is the part of a campaign that never changes, as fields of its state: the four pairs that adjust.lua compares.
func fixed(c *models.Campaign) []any {
	return []any{"kind", string(c.Kind), "time_zone", c.TimeZone, "currency", c.Currency, "hold_for_ms", c.HoldForMs}
}

// definition is the part of a campaign that a change may change, as fields of its state. The total of packets
// changes with Push, that of a shard with Debit and Credit.
func definition(c *models.Campaign) []any {
	fields := []any{"status", string(c.Status)}
	fields = append(fields, "per_user", c.PerUser, "per_user_per_day", c.PerUserPerDay, "limits", formatLimits(c.Limits))
	fields = append(fields, "starts_at_ms", unixMs(c.StartsAt), "ends_at_ms", unixMs(c.EndsAt), "low_stock_at", c.LowStockAt)
	if c.Kind != models.KindPacket && !models.IsShardID(c.ID) {
		fields = append(fields, "total", c.Total)
	}
	return fields
}

// unixMs is 0 for no time, and at least 1 for any time: a time before 1970 is past, and 0 would be none.
func unixMs(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return max(1, t.UnixMilli())
}
