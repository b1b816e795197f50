package resolve_test

import (
	"fmt"
	"time"

	"dibs/internal/syncertest"
	"dibs/models"

	"github.com/stretchr/testify/require"
)

// takenInRedis begins the line of wrong that tells that quota was lost, or came back twice.
const takenInRedis = "units taken in Redis"

// ended are the rows of a campaign, added up by what became of them.
type ended struct {
	rows             []models.ClaimRow
	live, back       int64 // units of live claims; claims that were given back
	users            map[string]*userEnded
	released, redeem map[string]bool // claim ids
}

// userEnded is what is left of a user's claims, and of the newest day that there are any of.
type userEnded struct{ total, day, onDay int64 }

func endedOf(h *syncertest.Stack, id string) *ended {
	h.T.Helper()
	e := &ended{users: map[string]*userEnded{}, released: map[string]bool{}, redeem: map[string]bool{}}
	require.NoError(h.T, h.DB.Where("campaign_id = ?", id).Order("seq").Find(&e.rows).Error)
	for i := range e.rows {
		e.add(&e.rows[i])
	}
	return e
}

func (e *ended) add(row *models.ClaimRow) {
	u := e.users[row.UserID]
	if u == nil {
		u = &userEnded{}
		e.users[row.UserID] = u
	}
	if day := row.ClaimedAt.UnixMilli() / (24 * time.Hour).Milliseconds(); day > u.day {
		u.day, u.onDay = day, 0
	}
	if !row.Status.Live() {
		e.back++
		e.released[row.ID] = true
		return
	}
	e.live += row.Quantity
	u.total += row.Quantity
	u.onDay += row.Quantity
	e.redeem[row.ID] = row.Status == models.ClaimRedeemed
}

// wrong lists what does not fit once everything is told: Redis' sums and users, MySQL's, events, and in the end what can be claimed yet.
func (k *killedResolvers) wrong() (lines []string) {
	k.T.Helper()
	equal := func(what string, a, b int64) {
		if a != b {
			lines = append(lines, fmt.Sprintf("%s: %d, and %d", what, a, b))
		}
	}
	k.Sync()
	e, c := endedOf(k.Stack, k.id), k.Campaign(k.id)
	state, err := k.Scripts.State(k.T.Context(), k.id)
	require.NoError(k.T, err)
	equal(takenInRedis+", units of live claims", state.Taken, e.live)
	equal("releases that Redis knows, claims given back", state.Released, e.back)
	equal("claims in Redis, rows", state.Seq, int64(len(e.rows)))
	equal("claimed in MySQL, units of live claims", c.Claimed, e.live)
	equal("remaining in MySQL, total less live", c.Remaining, c.Total-e.live)
	equal("releases that MySQL counts, claims given back", c.ReleasedClaims, e.back)
	equal("rows left in outbox, none", syncertest.Unapplied(k.T, k.DB), 0)
	lines = append(lines, k.usersWrong(e)...)
	lines = append(lines, k.eventsWrong(e)...)
	lines = append(lines, k.Compare(k.id).Differences...)
	var claimed int64
	for _, reply := range k.Claim(k.id, syncertest.Asks("rest", int(c.Total-e.live)+1)...) {
		if reply.Outcome == models.OutcomeClaimed {
			claimed++
		}
	}
	equal("units that were left to claim, total less live", claimed, c.Total-e.live)
	return lines
}

// usersWrong holds the records of users in Redis against the rows.
func (k *killedResolvers) usersWrong(e *ended) (lines []string) {
	k.T.Helper()
	records, err := k.Redis.HGetAll(k.T.Context(), k.Keys(k.id).Users).Result()
	require.NoError(k.T, err)
	if len(records) != len(e.users) {
		lines = append(lines, fmt.Sprintf("users in Redis: %d, of rows %d", len(records), len(e.users)))
	}
	for user, u := range e.users {
		if want := fmt.Sprintf("0:%d;%d:%d", u.total, u.day, u.onDay); records[user] != want {
			lines = append(lines, fmt.Sprintf("user %s has %s in Redis, by the rows %s", user, records[user], want))
		}
	}
	return lines
}

// eventsWrong: each release is in the stream once, each redemption by events of one id, and nothing else is.
func (k *killedResolvers) eventsWrong(e *ended) (lines []string) {
	k.T.Helper()
	releases, redemptions := map[string]int{}, map[string]string{}
	for _, event := range allEvents(k.Stack) {
		switch event.Type {
		case models.EventClaimReleased:
			releases[event.ClaimID]++
		case models.EventClaimRedeemed:
			if before := redemptions[event.ClaimID]; before != "" && before != event.ID {
				lines = append(lines, fmt.Sprintf("claim %s is redeemed by two events", event.ClaimID))
			}
			redemptions[event.ClaimID] = event.ID
		}
	}
	for i := range e.rows {
		id := e.rows[i].ID
		if (releases[id] == 1) != e.released[id] || releases[id] > 1 || (redemptions[id] != "") != e.redeem[id] {
			lines = append(lines, fmt.Sprintf("claim %s is %s; releases in the stream: %d, redeemed: %t", id, e.rows[i].Status, releases[id], redemptions[id] != ""))
		}
	}
	return lines
}
