package e2e

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"dibs/models"
)

// Releases, redemptions and expiry in the schedules: MySQL decides, Redis hears of it later, so when exactly a unit came back to Redis is
// known between two times: the decision, and the event, which Redis writes with it or after it.

// The states of a claim.
const (
	claimed  = "claimed"
	redeemed = "redeemed"
	released = "released"
	expired  = "expired"
)

// back tells whether a claim of this status was given back, by somebody or by time.
func back(status string) bool { return status == released || status == expired }

// ending is one request to release or redeem a claim.
type ending struct {
	status string // wanted
	code   string // "" when it was done
}

// heard is an event and when Redis wrote it.
type heard struct {
	models.Event

	heard time.Time
}

// endOne releases or redeems a claim that this client was told of, again at times, or the other way.
func (s *storefront) endOne() {
	if len(s.mine) == 0 {
		return
	}
	a := s.mine[s.r.IntN(len(s.mine))]
	if a.last().claim == nil || a.drama.hushed() || a.drama.Kind == packetKind { // a packet is credited as it is claimed
		return
	}
	wanted := released
	if s.r.IntN(4) == 0 {
		wanted = redeemed
	}
	s.end(a, wanted)
}

// end asks once for an end of a claim that was answered.
func (s *storefront) end(a *asked, wanted string) ending {
	e, verb, body := ending{status: wanted}, "release", map[string]any{"reason": "changed my mind"}
	if wanted == redeemed {
		verb, body = "redeem", map[string]any{"order_id": "order " + a.user}
	}
	status, text, _, err := s.post(s.base()+"/v1/claims/"+a.last().claim.ID+"/"+verb, "", body)
	switch {
	case err != nil:
		e.code = unanswered(err)
	case status != http.StatusOK:
		e.code = codeIn(text)
	}
	a.ends = append(a.ends, e)
	return e
}

// judgeEndings: a claim has one end, all answers tell of the same, and without any request it has none, or time's.
func (a *asked) judgeEndings(r *report, status string, lossy bool) {
	holds := a.drama.HoldFor != ""
	may := map[string]bool{claimed: true, expired: holds}
	for _, e := range a.ends {
		switch e.code {
		case "":
			may = map[string]bool{e.status: true, expired: holds && e.status == released} // of what expired a release is a repetition
		case "already_released":
			may = map[string]bool{released: true, expired: holds}
		case "already_redeemed":
			may = map[string]bool{redeemed: true}
		case unheard, "unavailable", "outcome_unknown":
			if may[claimed] {
				may[e.status] = true
			}
		case unreached:
		case "claim_not_found":
			if !lossy {
				r.addf("%s of %s: %s", e.status, a.user, e.code)
			}
		default:
			r.addf("%s of %s: %s", e.status, a.user, e.code)
		}
	}
	if !may[status] {
		r.addf("claim of %s is %s after %+v", a.user, status, a.ends)
	}
}

func releasedOf(rows map[string]book) (units int64) {
	for _, row := range rows {
		if back(row.status) {
			units += row.quantity
		}
	}
	return units
}

// judgeExpiry: a claim expires when nobody redeemed it in time, not before; and where claims expire, none is left undecided.
func (h *house) judgeExpiry(ctx context.Context, r *report, d *drama, rows map[string]book) {
	hold, err := time.ParseDuration(orZero(d.HoldFor))
	if err != nil {
		r.addf("%s: %v", d.ID, err)
		return
	}
	ends, err := h.releases(ctx, d.ID)
	if err != nil {
		r.addf("%v", err)
		return
	}
	for id, row := range rows {
		switch {
		case row.status == expired && (hold == 0 || ends[id].Add(blur).Before(row.at.Add(hold))):
			r.addf("claim %s %+v expired at %s, its campaign holds claims for %q", id, row, clock(ends[id]), d.HoldFor)
		case row.status == claimed && hold > 0 && !h.plan.control:
			r.addf("claim %s %+v has neither expired nor any other end", id, row)
		}
	}
}

func orZero(duration string) string {
	if duration == "" {
		return "0s"
	}
	return duration
}

// releases are the claims of a campaign that were released or expired, and when.
func (h *house) releases(ctx context.Context, id string) (map[string]time.Time, error) {
	found, err := h.db.QueryContext(ctx, "SELECT id, resolved_at FROM claims WHERE campaign_id = ? AND status IN (?, ?)", id, released, expired)
	if err != nil {
		return nil, fmt.Errorf("releases: %w", err)
	}
	defer func() { _ = found.Close() }()
	all := map[string]time.Time{}
	for found.Next() {
		var claim string
		var at time.Time
		if err := found.Scan(&claim, &at); err != nil {
			return nil, fmt.Errorf("releases: %w", err)
		}
		all[claim] = at
	}
	return all, found.Err()
}

// heldWrong says what is wrong with when a claim was said to expire; "" is nothing.
func (d *drama) heldWrong(c *models.Claim) string {
	hold, err := time.ParseDuration(orZero(d.HoldFor))
	switch {
	case err != nil:
		return err.Error()
	case hold == 0 && c.ExpiresAt != nil, hold > 0 && (c.ExpiresAt == nil || !c.ExpiresAt.Equal(c.ClaimedAt.Add(hold))):
		return fmt.Sprintf("it expires at %v, of %s and a hold of %s", c.ExpiresAt, c.ClaimedAt, hold)
	}
	return ""
}

// undecided tells whether claims may expire yet.
func (h *house) undecided(d *drama) bool {
	if d.HoldFor == "" {
		return false
	}
	var n int64
	err := h.db.QueryRowContext(h.t.Context(), "SELECT COUNT(*) FROM claims WHERE campaign_id = ? AND status = ?", d.ID, claimed).Scan(&n)
	return err != nil || n > 0
}

// untold is how many decisions about a campaign Redis has not heard of.
func (h *house) untold(d *drama) (n int64) {
	if h.db.QueryRowContext(h.t.Context(), "SELECT COUNT(*) FROM outbox WHERE campaign_id = ? AND applied_at IS NULL", d.ID).Scan(&n) != nil {
		return 1
	}
	return n
}

// backBy is the most units that may have come back by then, of a user or of all.
func (m *model) backBy(then time.Time, user string) (units int64) {
	return m.backIf(user, func(row *modelRow) bool { return !row.decided.IsZero() && !row.decided.After(then.Add(blur)) })
}

// surelyBack is the least.
func (m *model) surelyBack(then time.Time, user string) (units int64) {
	return m.backIf(user, func(row *modelRow) bool { return !row.told.IsZero() && row.told.Before(then.Add(-blur)) })
}

func (m *model) backIf(user string, back func(row *modelRow) bool) (units int64) {
	if m.back == 0 {
		return 0
	}
	rows := m.rows
	if user != "" {
		rows = m.users[user]
	}
	for i := range rows {
		if back(&rows[i]) {
			units += rows[i].quantity
		}
	}
	return units
}

// releasedOnce: each release is told, and once in effect: every event of a claim has the same id.
func (m *model) releasedOnce(r *report, told []models.Event) {
	ids := map[string]string{}
	for i := range told {
		e := &told[i]
		if id, before := ids[e.ClaimID]; before && id != e.ID {
			r.addf("%s: the release of %s is told as %s and as %s", m.d.ID, e.ClaimID, id, e.ID)
		}
		ids[e.ClaimID] = e.ID
	}
	for i := range m.rows {
		if row := &m.rows[i]; (ids[row.id] != "") != back(row.status) {
			r.addf("%s: claim %s is %s, its release was told: %t", m.d.ID, row.id, row.status, ids[row.id] != "")
		}
	}
}
