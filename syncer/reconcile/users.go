package reconcile

import (
	"context"
	"fmt"

	"dibs/lua"
)

// maxUsersNamed bounds the users, waves and lists that differ and are named one by one.
const maxUsersNamed = 10

// records compares the idempotency records, the users' counts and the packets in Redis with MySQL. settled is false when claims came
// in the meantime; then nothing was found out.
func (a *attempt) records(ctx context.Context, state *lua.State) (settled bool, err error) {
	c := &a.snap.campaign
	n, err := a.r.scripts.CountClaimRecords(ctx, c.ID)
	if err != nil {
		return false, err
	}
	var users []string
	if a.depth >= DepthUsers {
		users, err = a.users(ctx, c.ID)
		if err != nil {
			return false, err
		}
	}
	packets, err := a.packets(ctx, state)
	if err != nil {
		return false, err
	}
	again, err := a.r.scripts.State(ctx, c.ID)
	if err != nil || again.Seq != state.Seq || again.Epoch != state.Epoch || again.Released != state.Released ||
		again.Pushed != state.Pushed || again.Status != state.Status {
		return false, nil //nolint:nilerr // the next attempt will find it
	}
	if want := state.Seq - c.LostClaims - a.snap.rows.Archived; n != want {
		a.found.differInRedisf("redis holds %d idempotency records of %d claims", n, want)
	}
	for _, line := range users {
		a.found.differInRedisf("%s", line)
	}
	packets()
	return true, nil
}

// users returns a line for each user whose record in Redis is not what the rows add up to: the first ones, and how many more there are.
func (a *attempt) users(ctx context.Context, id string) (lines []string, err error) {
	more := 0
	seen := make(map[string]bool)
	add := func(line string) {
		if len(lines) < maxUsersNamed {
			lines = append(lines, line)
		} else {
			more++
		}
	}
	err = a.r.scripts.ScanUserRecords(ctx, id, func(user, record string) {
		if line := a.snap.users.Compare(user, record); line != "" && !seen[user] { // a scan may bring one twice
			add(line)
		}
		seen[user] = true
	})
	if err != nil {
		return nil, err
	}
	for user, units := range a.snap.users.Units() {
		if !seen[user] {
			add(fmt.Sprintf("%s has no record in redis, the rows are of %d units", lua.SubjectOf(user), units))
		}
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more users", more))
	}
	return lines, nil
}
