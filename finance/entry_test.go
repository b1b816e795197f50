package finance_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/finance"
	"dibs/models/event"
)

func TestEntryOf(t *testing.T) {
	t.Parallel()
	packet, left := packetClaim(7), closed(8, "sender", 500)
	but := func(e event.Event, change func(*event.Event)) event.Event { change(&e); return e }
	for name, c := range map[string]struct {
		event   event.Event
		credits bool
		refusal string // "": none
	}{
		"packet":             {packet, true, ""},
		"no currency":        {but(packet, func(e *event.Event) { e.Currency = "" }), true, ""},
		"coupon":             {couponClaim(7), false, ""},
		"what was left over": {left, true, ""},
		"nothing left over":  {closed(8, "sender", 0), false, ""},
		"no amount":          {but(left, func(e *event.Event) { e.Amount = nil }), false, ""},
		"no sender":          {closed(8, "", 500), false, ""},
		"a type of tomorrow": {but(packet, func(e *event.Event) { e.Type = "claim.given" }), false, ""},

		"packet without amount": {but(packet, func(e *event.Event) { e.Amount = nil }), false, "without an amount"},
		"amount without packet": {but(packet, func(e *event.Event) { e.PacketID = "" }), false, "packet_id"},
		"negative":              {but(packet, func(e *event.Event) { e.Amount = new(int64(-1)) }), false, "amount -1"},
		"too much":              {but(packet, func(e *event.Event) { e.Amount = new(int64(1e15)) }), false, "amount 1000000000000000"},
		"no such currency":      {but(left, func(e *event.Event) { e.Currency = "eur" }), false, `currency "eur"`},
		"long user":             {but(left, func(e *event.Event) { e.UserID = strings.Repeat("x", 129) }), false, "user_id"},
	} {
		entry, credits, err := finance.EntryOf(&c.event)
		require.Equal(t, c.credits, credits, name)
		if c.refusal != "" {
			require.ErrorIs(t, err, finance.ErrEvent, name)
			require.ErrorContains(t, err, c.refusal, name)
			continue
		}
		require.NoError(t, err, name)
		if credits {
			require.Equal(t, c.event.ID, entry.ClaimID, name)
			require.Equal(t, *c.event.Amount, entry.Amount, name)
			require.Equal(t, c.event.PacketID == "", entry.PacketID == nil, name)
		}
	}
}
