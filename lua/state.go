package lua

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"dibs/models"
)

// State is what Redis holds of a campaign at one moment, in units.
type State struct {
	Meta       Meta
	Status     models.Status
	Epoch      int64 // which load into Redis this is
	Version    int64 // of the definition
	Total      int64
	Taken      int64 // by live claims
	Seq        int64 // accepted claims so far
	LowStockAt int64
	AsOf       time.Time // by Redis' clock
}

// Remaining is the units that can still be claimed; 0 when total was lowered below what is taken.
func (s *State) Remaining() int64 { return max(0, s.Total-s.Taken) }

// State reads a campaign's state. Errors: ErrAbsent, ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (a read: ask again).
func (s *Scripts) State(ctx context.Context, campaignID string) (State, error) {
	keys := []string{s.KeysOf(campaignID).State}
	reply, err := s.run(ctx, s.state, keys, nil)
	if err != nil {
		return State{}, err
	}
	code, err := status("state", reply)
	if err != nil {
		return State{}, err
	}
	switch code {
	case statusOK:
		return s.decodeState(campaignID, reply)
	case statusAbsent:
		return State{}, fmt.Errorf("%w: %s", ErrAbsent, campaignID)
	default:
		return State{}, damaged("state", keys, reply)
	}
}

func (s *Scripts) decodeState(campaignID string, reply []any) (State, error) {
	f := fieldsOf(reply)
	zone, err := time.LoadLocation(f.text["time_zone"])
	if err != nil {
		return State{}, fmt.Errorf("%w: %s: time_zone: %w", ErrDamaged, campaignID, err)
	}
	st := State{
		Meta: Meta{
			ID: campaignID, Kind: models.Kind(f.text["kind"]), Partition: PartitionOf(campaignID, s.opts.Partitions),
			Location: zone, Currency: f.text["currency"], HoldForMs: f.number("hold_for_ms"),
		},
		Status: models.Status(f.text["status"]), Epoch: f.number("epoch"), Version: f.number("version"),
		Total: f.number("total"), Taken: f.number("taken"), Seq: f.number("seq"), LowStockAt: f.number("low_stock_at"),
	}
	if now, ok := reply[1].(int64); ok {
		st.AsOf = time.UnixMilli(now).UTC()
	}
	if f.err != nil {
		return State{}, fmt.Errorf("%w: %s: %w", ErrDamaged, campaignID, f.err)
	}
	return st, nil
}

// fields are a state's fields as text; number remembers the first that is none.
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

func (f *fields) number(name string) int64 {
	n, err := strconv.ParseInt(f.text[name], 10, 64)
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("field %s: %w", name, err)
	}
	return n
}
