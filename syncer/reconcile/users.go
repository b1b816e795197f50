package reconcile

import (
	"context"
	"fmt"
	"maps"

	"dibs/lua"
)

const (
	usersAtOnce    = 200 // records that one call reads: well below a millisecond of Redis
	usersNamedMost = 10  // users that differ and are named one by one
)

// records compares the idempotency records, the users' counts and the packets in Redis with MySQL. settled is false when claims came
// meanwhile; then nothing was found out.
func (l *look) records(ctx context.Context, state *lua.State) (settled bool, err error) {
	c := &l.snap.campaign
	keys := lua.KeysOf(c.ID, c.Partition)
	n, err := l.r.cfg.Redis.HLen(ctx, keys.Keys).Result()
	if err != nil {
		return false, fmt.Errorf("syncer: compare %s: %w", c.ID, err)
	}
	var users []string
	if l.depth >= DepthUsers {
		if users, err = l.users(ctx, keys.Users); err != nil {
			return false, err
		}
	}
	packets, err := l.packets(ctx, state)
	if err != nil {
		return false, err
	}
	again, err := l.r.cfg.Scripts.State(ctx, c.ID)
	if err != nil || again.Seq != state.Seq || again.Epoch != state.Epoch || again.Released != state.Released ||
		again.Pushed != state.Pushed || again.Status != state.Status {
		return false, nil //nolint:nilerr // the next look will tell
	}
	if n != state.Seq-c.LostClaims {
		l.found.differInRedisf("redis holds %d idempotency records of %d claims", n, state.Seq-c.LostClaims)
	}
	for _, line := range users {
		l.found.differInRedisf("%s", line)
	}
	packets()
	return true, nil
}

// users returns a line for each user whose count in Redis is not what the rows add up to.
func (l *look) users(ctx context.Context, key string) ([]string, error) {
	d := userDifferences{}
	rest := make(map[string]held, len(l.snap.users))
	maps.Copy(rest, l.snap.users)
	for cursor := uint64(0); ; {
		page, next, err := l.r.cfg.Redis.HScan(ctx, key, cursor, "", usersAtOnce).Result()
		if err != nil {
			return nil, fmt.Errorf("syncer: compare %s: %w", l.snap.campaign.ID, err)
		}
		for i := 0; i+1 < len(page); i += 2 { // a record may come twice
			d.compare(page[i], page[i+1], l.snap.users[page[i]])
			delete(rest, page[i])
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	for user, h := range rest {
		d.add(user, fmt.Sprintf("user %s has no record in redis, the rows are of %d units", user, h.total))
	}
	return d.said(), nil
}

// userDifferences are the users whose records differ; only some are named.
type userDifferences struct {
	seen  map[string]bool
	lines []string
}

func (d *userDifferences) add(user, line string) {
	if d.seen[user] {
		return
	}
	if d.seen == nil {
		d.seen = make(map[string]bool)
	}
	d.seen[user] = true
	if len(d.lines) < usersNamedMost {
		d.lines = append(d.lines, line)
	}
}

func (d *userDifferences) said() []string {
	if more := len(d.seen) - len(d.lines); more > 0 {
		return append(d.lines, fmt.Sprintf("and %d more users", more))
	}
	return d.lines
}

// compare reads a user's record, "0:units;day:units". Where a zone leaves out a midnight or passes it twice, a claim may
// count for the day beside the one that its date says: such records are compared by their totals only.
func (d *userDifferences) compare(user, record string, h held) {
	var total, day, onDay int64
	if _, err := fmt.Sscanf(record, "0:%d;%d:%d", &total, &day, &onDay); err != nil {
		d.add(user, fmt.Sprintf("user %s has a record in redis that reads %.40q", user, record))
		return
	}
	if total != h.total {
		d.add(user, fmt.Sprintf("user %s holds %d units in redis, the rows are of %d", user, total, h.total))
		return
	}
	if beside := day - h.day; h.total > 0 && (beside == 0 && onDay != h.onDay || beside > 1 || beside < -1) {
		d.add(user, fmt.Sprintf("user %s holds %d units of day %d in redis, the rows are of %d on day %d", user, onDay, day, h.onDay, h.day))
	}
}
