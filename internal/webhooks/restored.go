package webhooks

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm/clause"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models/stored"
)

// positionsEvery is how often the stream positions are written to MySQL.
const positionsEvery = time.Second

// webhookPositions prefixes the names of the settings with the webhooks'
// stream positions: from there on, MySQL may lack waiting events.
const webhookPositions = "webhooks:"

func webhookPosition(partition int) string { return webhookPositions + strconv.Itoa(partition) }

// errRestored ends a run that delivers by a table which an older one replaced.
var errRestored = errors.New("webhooks: mysql was restored")

// ReadAgainAfterRestores runs read, which reads the streams. Beside it, it writes
// the stream positions to MySQL and checks that they are still there. A restored
// MySQL has older positions and lacks the events that waited in it since. Run then
// begins anew, and the streams are read again from those positions. The first
// check comes before read, and waits for MySQL: else newer events would be posted
// first.
func (d *Dispatcher) ReadAgainAfterRestores(ctx context.Context, scripts *lua.Scripts, read func(context.Context) error) error {
	written := make(map[string]string)
	for d.tryPositions(ctx, scripts, written) != nil && ctx.Err() == nil {
		_ = sleep.For(ctx, positionsEvery)
	}
	reading, stop := context.WithCancelCause(ctx)
	var checking sync.WaitGroup
	checking.Go(func() {
		for sleep.For(reading, positionsEvery) == nil {
			if err := d.tryPositions(reading, scripts, written); errors.Is(err, errRestored) {
				stop(err)
			}
		}
	})
	err := read(reading)
	stop(nil)
	checking.Wait()
	switch cause := context.Cause(reading); {
	case errors.Is(cause, errRestored):
		return cause
	case errors.Is(cause, ErrReplaced): // or the next start would repeat events
	default:
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), positionsEvery)
		defer cancel()
		_ = d.tryPositions(last, scripts, written)
	}
	return err
}

func (d *Dispatcher) tryPositions(ctx context.Context, scripts *lua.Scripts, written map[string]string) error {
	err := d.checkPositions(ctx, scripts, written)
	switch {
	case errors.Is(err, errRestored):
		d.cfg.Logger.Warn("mysql was restored: the webhooks begin anew with the events that wait in it")
	case err != nil && ctx.Err() == nil:
		d.cfg.Logger.Warn("the stream positions of the webhooks are not written to mysql yet, will try again", "error", err)
	}
	return err
}

func (d *Dispatcher) checkPositions(ctx context.Context, scripts *lua.Scripts, written map[string]string) error {
	var rows []stored.Setting
	if err := d.cfg.DB.WithContext(ctx).Where("name LIKE ?", webhookPositions+"%").Find(&rows).Error; err != nil {
		return err
	}
	there := make(map[string]string, len(rows))
	for i := range rows {
		there[rows[i].Name] = rows[i].Value
	}
	var restored error
	for p := range scripts.Partitions() {
		err := d.checkPosition(ctx, scripts, p, there, written)
		if err != nil && !errors.Is(err, errRestored) {
			return err
		}
		restored = cmp.Or(restored, err)
	}
	return restored
}

// checkPosition compares what MySQL has with what this process wrote, and at its
// start with the group, which nothing else moves on: after a crash the events of
// a second may come again. If an older position is there, the group reads from it.
// Errors: errRestored, if this process wrote a later one.
func (d *Dispatcher) checkPosition(ctx context.Context, scripts *lua.Scripts, partition int, there, written map[string]string) error {
	from, found, err := position(ctx, scripts, partition)
	if err != nil || !found { // its reader creates it
		return err
	}
	name := webhookPosition(partition)
	_, text, _ := strings.Cut(there[name], " ")
	was, _ := lua.ParseEntryID(text) // without one, all that the stream holds
	own := written[name]
	if there[name] == own || own == "" && !was.Less(from) {
		return d.writePosition(ctx, name, from, written)
	}
	if err := scripts.RewindGroup(ctx, partition, Group, was); err != nil {
		return err
	}
	d.cfg.Logger.Warn("mysql lacks the last position: events of the claim stream since then are posted again",
		"partition", partition, "from", was.String())
	written[name] = there[name]
	if own != "" {
		return errRestored
	}
	return nil
}

// position is where a stream must be read again if MySQL loses all events. It
// is not found while the group doesn't exist.
func position(ctx context.Context, scripts *lua.Scripts, partition int) (from lua.EntryID, found bool, err error) {
	groups, err := scripts.Groups(ctx, partition)
	if err != nil {
		return from, false, err
	}
	at := slices.IndexFunc(groups, func(g lua.Group) bool { return g.Name == Group })
	if at < 0 {
		return from, false, nil
	}
	if groups[at].Pending > 0 {
		return groups[at].Oldest, true, nil
	}
	return groups[at].Delivered.Next(), true, nil
}

// writePosition writes the position in a stream, if it changed.
func (d *Dispatcher) writePosition(ctx context.Context, name string, from lua.EntryID, written map[string]string) error {
	if strings.HasSuffix(written[name], " "+from.String()) {
		return nil
	}
	row := stored.Setting{Name: name, Value: rand.Text() + " " + from.String()}
	if err := d.cfg.DB.WithContext(ctx).Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error; err != nil {
		return err
	}
	written[name] = row.Value
	return nil
}
