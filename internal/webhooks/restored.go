package webhooks

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm/clause"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
)

// positionsEvery is how often the stream positions are written to MySQL.
const positionsEvery = time.Second

// webhookPositions prefixes the names of the settings with the webhooks'
// stream positions: from there on, MySQL may lack waiting events.
const webhookPositions = "webhooks:"

func webhookPosition(partition int) string { return webhookPositions + strconv.Itoa(partition) }

// ReadAgainAfterRestores writes the stream positions to MySQL and checks that
// they are still there, until ctx ends. A restored MySQL has older positions
// and lacks the events that waited in it since. The streams are then read
// again from those positions.
func (d *Dispatcher) ReadAgainAfterRestores(ctx context.Context, scripts *lua.Scripts) {
	written := make(map[string]string)
	for ctx.Err() == nil {
		if err := d.checkPositions(ctx, scripts, written); err != nil && ctx.Err() == nil {
			d.cfg.Logger.Warn("the stream positions of the webhooks are not written to mysql yet, will try again", "error", err)
		}
		_ = sleep.For(ctx, positionsEvery)
	}
}

func (d *Dispatcher) checkPositions(ctx context.Context, scripts *lua.Scripts, written map[string]string) error {
	var rows []models.Setting
	if err := d.cfg.DB.WithContext(ctx).Where("name LIKE ?", webhookPositions+"%").Find(&rows).Error; err != nil {
		return err
	}
	there := make(map[string]string, len(rows))
	for i := range rows {
		there[rows[i].Name] = rows[i].Value
	}
	for p := range scripts.Partitions() {
		name := webhookPosition(p)
		if mine := written[name]; mine != "" && there[name] != mine {
			_, position, _ := strings.Cut(there[name], " ")
			from, err := lua.ParseEntryID(position)
			if err == nil {
				err = scripts.RewindGroup(ctx, p, Group, from)
			}
			if err != nil {
				return err
			}
			d.cfg.Logger.Warn("mysql was restored: events of the claim stream since then are posted again", "partition", p, "from", from.String())
			written[name] = there[name]
		}
		if err := d.writePosition(ctx, scripts, p, written); err != nil {
			return err
		}
	}
	return nil
}

// writePosition writes the position in a stream, if it changed.
func (d *Dispatcher) writePosition(ctx context.Context, scripts *lua.Scripts, partition int, written map[string]string) error {
	groups, err := scripts.Groups(ctx, partition)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(groups, func(g lua.Group) bool { return g.Name == Group })
	if at < 0 { // its reader creates it
		return nil
	}
	from := groups[at].Delivered.Next()
	if groups[at].Pending > 0 {
		from = groups[at].Oldest
	}
	name := webhookPosition(partition)
	if strings.HasSuffix(written[name], " "+from.String()) {
		return nil
	}
	row := models.Setting{Name: name, Value: rand.Text() + " " + from.String()}
	if err := d.cfg.DB.WithContext(ctx).Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error; err != nil {
		return err
	}
	written[name] = row.Value
	return nil
}
