package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"dibs/api"
	"dibs/api/console"
	"dibs/api/console/health"
	"dibs/consumer"
	"dibs/internal/audit"
	"dibs/internal/redisconn"
	"dibs/internal/softstate"
	"dibs/internal/webhooks"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/compare"
	"dibs/syncer/records"
)

// consoleDeps is what the console needs beyond the API; nil if it is off.
func (s *Stack) consoleDeps() *api.ConsoleDeps {
	if !s.Config.Console {
		return nil
	}
	read := records.New(s.DB)
	parked := parkedOf{s}
	deps := &api.ConsoleDeps{
		Health: health.Sources{
			Redis: redisOf{s.Scripts, s.shared, s.Redis}, MySQL: s.mysqlPool, Books: read.Trouble, Parked: parked.Counts,
		},
		Campaigns: s.Campaigns, Records: read, Parked: parked, Ended: s.shared, Books: booksOf{s.Comparer()},
	}
	for _, of := range s.Config.Sources() {
		deps.Settings = append(deps.Settings, console.Setting(of))
	}
	return deps
}

type redisOf struct {
	*lua.Scripts
	*softstate.Store

	rdb redis.UniversalClient
}

// Health returns Redis' own figures.
func (r redisOf) Health(ctx context.Context) (redisconn.Health, error) {
	return redisconn.HealthOf(ctx, r.rdb)
}

// mysqlPool checks MySQL, and returns the pool's figures and the gaps.
func (s *Stack) mysqlPool(ctx context.Context) (health.Pool, error) {
	pool, err := s.DB.DB()
	if err == nil {
		err = pool.PingContext(ctx)
	}
	if err != nil {
		return health.Pool{}, err
	}
	gaps, err := compare.Gaps(ctx, s.DB, s.Scripts)
	if err != nil {
		return health.Pool{}, err
	}
	stats := pool.Stats()
	answer := health.Pool{InUse: stats.InUse, Conns: stats.MaxOpenConnections}
	for i := range gaps {
		answer.Gaps = append(answer.Gaps, gaps[i].String())
	}
	return answer, nil
}

type parkedOf struct{ s *Stack }

// Counts counts messages by group, of groups in the settings or with a
// reader. It skips webhooks, whose parked events are in MySQL.
func (p parkedOf) Counts(ctx context.Context) (map[string]int64, error) {
	counts := make(map[string]int64)
	reading, err := p.s.Scripts.Groups(ctx, 0)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(p.s.Config.Groups)
	for i := range reading {
		names = append(names, reading[i].Name)
	}
	for _, group := range names {
		if group == webhooks.Group {
			continue
		}
		counts[group], err = p.s.ParkedBy(group).Count(ctx)
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// List returns a group's parked messages.
func (p parkedOf) List(ctx context.Context, group string, most int) (list []console.ParkedMessage, err error) {
	asked, err := p.s.ParkedBy(group).Asked(ctx)
	if err != nil {
		return nil, err
	}
	add := func(m console.ParkedMessage) bool {
		m.Left, m.Asked = asked[m.ID]
		m.Asked = m.Asked && m.Left == ""
		list = append(list, m)
		return len(list) < most
	}
	if group == webhooks.Group {
		for row, err := range webhooks.Parked(ctx, p.s.DB, webhooks.Which{}) {
			if err != nil {
				return nil, err
			}
			if !add(console.ParkedMessage{
				ID: row.Endpoint + "/" + row.EventID, EventID: row.EventID, Reason: row.Reason, Payload: string(row.Payload), At: *row.ParkedAt,
			}) {
				break
			}
		}
		return list, nil
	}
	for m, err := range p.s.ParkedBy(group).All(ctx) {
		if err != nil {
			return nil, err
		}
		if !add(console.ParkedMessage{
			ID: m.ID, EventID: m.EventID, Reason: m.Reason, Payload: m.Payload, At: m.At.Time, Attempts: m.Attempts,
		}) {
			break
		}
	}
	return list, nil
}

// Replay requests a replay by the group's processes: only they can handle
// the messages.
func (p parkedOf) Replay(ctx context.Context, group string, ids []string) error {
	for _, id := range ids {
		err := p.s.Note(ctx, models.AuditParkedReplayed, group, id)
		if err == nil {
			err = p.s.ParkedBy(group).AskReplay(ctx, id)
		}
		if err != nil && !errors.Is(err, consumer.ErrNoParked) {
			return err
		}
	}
	return nil
}

// Discard deletes a message.
func (p parkedOf) Discard(ctx context.Context, group, id string) error {
	err := p.s.Note(ctx, models.AuditParkedDiscarded, group, id)
	switch {
	case errors.Is(err, consumer.ErrNoParked):
		return nil
	case err != nil:
		return err
	case group == webhooks.Group:
		for _, err := range webhooks.Discard(ctx, p.s.DB, parkedWebhookOf(id)) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	_, err = p.s.ParkedBy(group).Discard(ctx, id)
	if errors.Is(err, consumer.ErrNoParked) {
		return nil
	}
	return err
}

// parkedWebhookOf parses the console's id of a parked event:
// "<endpoint>/<event id>".
func parkedWebhookOf(id string) webhooks.Which {
	endpoint, event, _ := strings.Cut(id, "/")
	return webhooks.Which{Endpoint: endpoint, EventID: event}
}

type booksOf struct{ *compare.Comparer }

// Compare compares a campaign and records the result.
func (b booksOf) Compare(ctx context.Context, id string) (console.Verdict, error) {
	found, err := b.Comparer.Compare(ctx, id)
	if err == nil {
		err = b.Record(ctx, &found)
	}
	return console.Verdict{Agrees: found.Agrees(), Lines: found.Differences}, err
}

// Repair repairs, and never gives up an answered claim.
func (b booksOf) Repair(ctx context.Context, id string) (console.Verdict, error) {
	done, err := b.Comparer.Repair(ctx, id, false)
	if err == nil {
		err = b.Record(ctx, &done.Left)
	}
	v := console.Verdict{Agrees: done.Left.Agrees()}
	for _, step := range done.Steps {
		v.Lines = append(v.Lines, fmt.Sprintf("Repaired %s: %s → %s", step.What, step.ValueBefore, step.ValueAfter))
	}
	for _, line := range done.Left.Differences {
		v.Lines = append(v.Lines, "Still: "+line)
	}
	return v, err
}

// Comparer is for one command, without metrics.
func (s *Stack) Comparer() *compare.Comparer {
	return compare.New(s.DB, s.Scripts, s.Loader, s.Logger, nil)
}

// Note records in the audit log what is about to be done to parked
// messages, all or those with an id. It precedes the action: what can't be
// recorded isn't done. Errors: consumer.ErrNoParked.
func (s *Stack) Note(ctx context.Context, action, group, id string) error {
	if group == webhooks.Group {
		isAny, err := NoteWebhooks(ctx, s.DB, action, parkedWebhookOf(id))
		if err == nil && !isAny {
			err = fmt.Errorf("%w: %q", consumer.ErrNoParked, id)
		}
		return err
	}
	if id != "" {
		if _, err := s.ParkedBy(group).Find(ctx, id); err != nil {
			return err
		}
	}
	return audit.NewLog(s.DB).Note(ctx, action, audit.Parked{Group: group, ID: id})
}

// NoteWebhooks is Note for parked events of webhooks. It reports whether
// there is such an event; if not, it records nothing.
func NoteWebhooks(ctx context.Context, db *gorm.DB, action string, which webhooks.Which) (isAny bool, err error) {
	isAny, err = webhooks.IsAnyParked(ctx, db, which)
	if err != nil || !isAny {
		return false, err
	}
	return true, audit.NewLog(db).Note(ctx, action, audit.Parked{Group: webhooks.Group, Endpoint: which.Endpoint, ID: which.EventID})
}

// ParkedBy has a group's parked messages. Those of webhooks are in MySQL.
func (s *Stack) ParkedBy(group string) *consumer.ParkingLot {
	return consumer.NewParkingLot(s.Redis, s.Config.Partitions, group)
}
