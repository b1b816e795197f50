package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Packets in the schedules: a campaign whose units are packets, one a claim, and whose total grows as the operator adds lists of them.

const packetKind = "packet"

// packetsOne has the last campaign hand out packets, in half of the plans.
func (p *plan) packetsOne() {
	r := p.extra(9)
	if r.IntN(2) == 0 {
		return
	}
	c := &p.campaigns[len(p.campaigns)-1]
	c.Kind, c.Total = packetKind, between(r, 30, 300)
}

// packetList is a run of packets that was sent and perhaps not taken down: p<from+1> to p<upto>, each worth its number.
type packetList struct{ from, upto int64 }

// openPackets makes a packet campaign, without packets.
func openPackets(t testing.TB, url string, c campaign) campaign {
	t.Helper()
	got := call(t, http.MethodPost, url+"/v1/campaigns", "", map[string]any{
		"id": c.ID, "kind": c.Kind, "per_user": c.PerUser, "per_user_per_day": c.PerUserPerDay, "time_zone": c.TimeZone,
		"low_stock_at": c.LowStockAt, "currency": "CNY", "sender_id": "boss",
	})
	require.Equal(t, http.StatusCreated, got.status, got.body)
	return c
}

// nextList is the list that brings a campaign to so many packets; first of all the one that is in doubt, as it was.
func (d *drama) nextList(upto int64) packetList {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.doubt == (packetList{}) {
		d.doubt = packetList{d.added, max(d.added, upto)}
	}
	return d.doubt
}

// takenDown has a list be no longer in doubt.
func (d *drama) takenDown(l packetList) { d.added, d.doubt = l.upto, packetList{} }

// sendList adds packets once.
func (h *house) sendList(d *drama, url string, l packetList) reply {
	var packets []map[string]any
	for n := l.from + 1; n <= l.upto; n++ {
		packets = append(packets, map[string]any{"id": fmt.Sprintf("p%d", n), "amount": n})
	}
	return call(h.t, http.MethodPost, url+"/v1/campaigns/"+d.ID+"/packets", "", map[string]any{"packets": packets})
}

// addPackets is change of total for a packet campaign.
func (h *house) addPackets(d *drama, url string, upto int64) (done bool) {
	l := d.nextList(upto)
	if l.upto == l.from {
		return true // they are all there
	}
	d.mu.Lock()
	d.spells["total"] = append(d.spells["total"], spell{value: l.upto, from: time.Now()})
	d.mu.Unlock()
	h.restocks.Add(1)
	defer h.restocks.Add(1)
	got := h.sendList(d, url, l)
	if got.err == nil && got.status/100 != 2 && got.status != http.StatusServiceUnavailable {
		h.t.Errorf("POST packets of %s: %d %s", d.ID, got.status, got.body)
	}
	if got.err != nil || got.status/100 != 2 {
		return false
	}
	state, err := h.scripts.State(context.WithoutCancel(h.t.Context()), d.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takenDown(l)
	if err == nil && state.Total >= l.upto { // they are in MySQL, and Redis may hear of them later
		d.inForce("total")
	}
	return l.upto >= upto
}

// judgePackets: every claim has one packet, which is the one that it was told of, and every packet one claim at most.
func (h *house) judgePackets(ctx context.Context, r *report, d *drama, rows map[string]book) {
	if d.Kind != packetKind {
		return
	}
	found, err := h.db.QueryContext(ctx, "SELECT id, amount, COALESCE(user_id, ''), COALESCE(claim_id, '') FROM packets WHERE campaign_id = ?", d.ID)
	if err != nil {
		r.addf("%s: %v", d.ID, err)
		return
	}
	defer func() { _ = found.Close() }()
	owned, packets := map[string]string{}, int64(0)
	for found.Next() {
		var id, user, claim string
		var amount int64
		if err := found.Scan(&id, &amount, &user, &claim); err != nil {
			r.addf("%s: %v", d.ID, err)
			return
		}
		packets++
		row, there := rows[claim]
		switch {
		case id != fmt.Sprintf("p%d", amount):
			r.addf("%s: packet %s holds %d", d.ID, id, amount)
		case claim != "" && (!there || row.user != user || owned[claim] != ""):
			r.addf("%s: packet %s has owner %s by claim %s, whose row is %+v, and which has %q too", d.ID, id, user, claim, row, owned[claim])
		case claim != "":
			owned[claim] = id
		}
	}
	if err := found.Err(); err != nil {
		r.addf("%s: %v", d.ID, err)
	}
	r.equal(d.ID+": packets, total", packets, d.totalNow())
	r.equal(d.ID+": packets with an owner, rows", int64(len(owned)), int64(len(rows)))
	for _, a := range h.journal.all {
		for i := range a.tries {
			c := a.tries[i].claim
			if a.drama != d || c == nil || rows[c.ID].user == "" {
				continue
			}
			if c.Amount == nil || c.PacketID != owned[c.ID] || c.PacketID != fmt.Sprintf("p%d", *c.Amount) {
				r.addf("claim %s was told of packet %s (%v), and has %s", c.ID, c.PacketID, c.Amount, owned[c.ID])
			}
		}
	}
}
