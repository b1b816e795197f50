package lua

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"dibs/models"
	"dibs/models/calendar"
)

// State is Redis' state of a campaign at one moment, in units.
type State struct {
	Meta       Meta
	Status     models.Status
	Epoch      int64 // of the load
	Version    int64 // of the definition
	Total      int64
	Taken      int64 // by live claims
	Seq        int64 // the last claim's
	Sold       int64 // units of all claims, with lost ones
	Released   int64 // claims that were released
	LowStockAt int64
	PerUser    int64     // units; 0: no limit
	PerDay     int64     // units a day; 0: no limit
	Shares               // of a shard
	Pushed     int64     // Redis' last position of packets
	limits     string    // see Limits
	LastMs     int64     // time of the last claim or load, in ms since 1970 by Redis' clock
	AsOf       time.Time // by Redis' clock
}

// Remaining returns the units that can still
// be claimed; 0 if total is below taken.
func (s *State) Remaining() int64 { return max(0, s.Total-s.Taken) }

// Position returns how far the campaign is.
func (s *State) Position() Position { return Position{Epoch: s.Epoch, Seq: s.Seq, Units: s.Sold} }

// Limits returns the limits as Redis counts
// them, without per_user and per_user_per_day.
func (s *State) Limits() models.Limits {
	limits, _ := parseLimits(s.limits) // checked before
	return limits
}

// Drift returns how many units Redis has to give beyond
// MySQL, at one watermark. While a change is on its way
// the totals may differ. Then Drift compares claims.
func (s *State) Drift(books *models.Books) int64 {
	if s.SameDefinition(books) {
		return s.Remaining() - max(0, books.Remaining-books.ParkedUnits)
	}
	return books.Claimed + books.ParkedUnits + books.LostUnits - s.Taken
}

// Stock combines both servers' counters; Redis must be read last.
// Backlog is units in Redis and not yet in MySQL. Parked units do not
// count, as MySQL never gets them.
//
// At one watermark the backlog is 0, and any difference is drift. So is
// a MySQL ahead of Redis, which then lost data.
func (s *State) Stock(books *models.Books) models.Stock {
	st := models.Stock{
		CampaignID: s.Meta.ID, Total: s.Total, Remaining: s.Remaining(), Claimed: max(0, s.Taken-books.LostUnits),
		Synced: books.Claimed, Parked: books.ParkedUnits, LostClaims: books.LostClaims, LostUnits: books.LostUnits,
		AsOf: models.NewTime(s.AsOf),
	}
	st.Low = s.LowStockAt > 0 && st.Remaining <= s.LowStockAt
	switch at := books.SoldEver(); {
	case at < s.Sold:
		st.Backlog = max(0, s.Taken-books.Claimed-books.ParkedUnits-books.LostUnits)
	case at > s.Sold || books.Released == s.Released: // a release on its way to Redis is a lag, too
		st.Drift = s.Drift(books)
	}
	return st
}

// SameDefinition reports whether no change of the campaign is on its way.
func (s *State) SameDefinition(books *models.Books) bool {
	return s.Version == books.Version && books.AppliedVersion == books.Version
}

// State reads a lot's state. Errors: ErrAbsent, ErrDamaged,
// ErrUnavailable, ErrOutcomeUnknown.
func (s *Scripts) State(ctx context.Context, campaignID string) (State, error) {
	k := s.KeysOf(campaignID)
	keys := []string{k.State, k.Users, k.Keys, k.Signals}
	code, reply, err := s.run(ctx, "state", keys, nil)
	switch {
	case err != nil:
		return State{}, err
	case code != statusOK:
		return State{}, refusal("state", campaignID, keys, code, reply)
	}
	st, err := s.stateOf(campaignID, fieldsOf(reply))
	if now, ok := reply[1].(int64); ok {
		st.AsOf = time.UnixMilli(now).UTC()
	}
	return st, err
}

// StateOf parses the hash at CampaignKeys.State, given the partition's
// generation. The caller sets AsOf. Errors: ErrAbsent, ErrDamaged.
func (s *Scripts) StateOf(campaignID string, hash map[string]string, generation string) (State, error) {
	if len(hash) == 0 || isAway(hash, generation) {
		return State{}, ErrAbsent
	}
	return s.stateOf(campaignID, &fields{text: hash})
}

// stateOf parses the fields of a state. The
// caller sets AsOf. Errors: ErrDamaged.
func (s *Scripts) stateOf(campaignID string, f *fields) (State, error) {
	zone := f.zone("time_zone")
	st := State{
		Meta: Meta{
			ID: campaignID, Kind: models.Kind(f.oneOf("kind", kinds)), Partition: PartitionOf(campaignID, s.opts.Partitions),
			Location: zone, Currency: f.text["currency"], HoldForMs: f.number("hold_for_ms"),
		},
		Status: models.Status(f.oneOf("status", statuses)), Epoch: f.number("epoch"), Version: f.number("version"),
		Total: f.total(campaignID), Taken: f.number("taken"), Seq: f.number("seq"), LowStockAt: f.number("low_stock_at"),
		PerUser: f.number("per_user"), PerDay: f.number("per_user_per_day"), limits: f.text["limits"], LastMs: f.number("last_ms"),
		Released: f.number("released"), Sold: f.number("sold"),
	}
	if f.text["made_ms"] != "" { // older versions did not write it
		st.Meta.MadeMs = f.number("made_ms")
	}
	if st.Meta.Kind == models.KindPacket {
		st.Pushed = f.number("pushed")
	}
	if st.Meta.IsShard() {
		st.Meta.Shards = int(f.number("shards"))
		st.Shares = sharesOf(f)
		st.Meta.ShardBy = f.text["shard_by"]
	}
	for _, name := range []string{"starts_at_ms", "ends_at_ms"} {
		f.number(name) // claim.lua requires it
	}
	if _, err := parseLimits(st.limits); err != nil {
		f.refuse("limits", err)
	}
	if f.err != nil {
		return State{}, fmt.Errorf("%w: %s: %w", ErrDamaged, campaignID, f.err)
	}
	return st, nil
}

var (
	kinds    = []string{string(models.KindCoupon), string(models.KindPacket)}
	statuses = []string{string(models.StatusOpen), string(models.StatusPaused), string(models.StatusClosed)}
)

// errField reports a damaged field of a state.
var errField = errors.New("not what was written there")

// fields are a state's fields; err is about the first damaged one.
type fields struct {
	text map[string]string
	err  error
}

func fieldsOf(reply []any) *fields {
	f := &fields{text: make(map[string]string, len(reply)/2)}
	for i := 2; i+1 < len(reply); i += 2 {
		name, _ := reply[i].(string)
		value, _ := reply[i+1].(string)
		f.text[name] = value
	}
	return f
}

func (f *fields) refuse(name string, err error) {
	if f.err == nil {
		f.err = fmt.Errorf("field %s: %w", name, err)
	}
}

// digitsMax bounds numbers in Redis: Lua's are exact up to 15 digits.
const digitsMax = 15

func (f *fields) number(name string) int64 {
	n, err := strconv.ParseUint(f.text[name], 10, 63)
	if err == nil && len(f.text[name]) > digitsMax {
		err = errField
	}
	if err != nil {
		f.refuse(name, err)
	}
	return int64(n)
}

// total parses the total of a lot. A shard may owe units.
func (f *fields) total(id string) int64 {
	owed, owes := strings.CutPrefix(f.text["total"], "-")
	if owes && models.IsShardID(id) {
		return -(&fields{text: map[string]string{"total": owed}}).number("total")
	}
	return f.number("total")
}

func (f *fields) oneOf(name string, values []string) string {
	if !slices.Contains(values, f.text[name]) {
		f.refuse(name, errField)
	}
	return f.text[name]
}

func (f *fields) zone(name string) *time.Location {
	zone, err := calendar.LoadZone(f.text[name])
	if err != nil {
		f.refuse(name, err)
	}
	return zone
}
