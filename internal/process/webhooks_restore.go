package process

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm/clause"

	"dibs/internal/sleep"
	"dibs/internal/webhooks"
	"dibs/lua"
	"dibs/models"
)

// placesEvery is how often the places of the webhooks in the claim streams are written to MySQL.
const placesEvery = time.Second

// webhookPlaces begins the names of the settings that have the places of the webhooks in the streams: from which entry on MySQL may lack
// events that wait.
const webhookPlaces = "webhooks:"

func webhookPlace(partition int) string { return webhookPlaces + strconv.Itoa(partition) }

// readAgainAfterRestores writes the places of the webhooks into MySQL and looks whether they are there still. A MySQL that was restored has
// older ones: events that waited in it are gone with the rows, so the streams are read again from there.
func (s *Stack) readAgainAfterRestores(ctx context.Context) {
	written := make(map[string]string)
	for ctx.Err() == nil {
		if err := s.checkPlaces(ctx, written); err != nil && ctx.Err() == nil {
			s.Logger.Warn("the places of the webhooks are not written to mysql yet, will try again", "error", err)
		}
		_ = sleep.For(ctx, placesEvery)
	}
}

func (s *Stack) checkPlaces(ctx context.Context, written map[string]string) error {
	var rows []models.Setting
	if err := s.DB.WithContext(ctx).Where("name LIKE ?", webhookPlaces+"%").Find(&rows).Error; err != nil {
		return err
	}
	there := make(map[string]string, len(rows))
	for i := range rows {
		there[rows[i].Name] = rows[i].Value
	}
	for p := range s.Config.Partitions {
		name := webhookPlace(p)
		if mine := written[name]; mine != "" && there[name] != mine {
			_, place, _ := strings.Cut(there[name], " ")
			from, err := lua.ParseEntryID(place)
			if err == nil {
				err = s.Scripts.RewindGroup(ctx, p, webhooks.Group, from)
			}
			if err != nil {
				return err
			}
			s.Logger.Warn("mysql was restored: events of the claim stream since then are posted again", "partition", p, "from", from.String())
			written[name] = there[name]
		}
		if err := s.writePlace(ctx, p, written); err != nil {
			return err
		}
	}
	return nil
}

// writePlace writes the place in a stream, if it is another than before.
func (s *Stack) writePlace(ctx context.Context, partition int, written map[string]string) error {
	groups, err := s.Scripts.Groups(ctx, partition)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(groups, func(g lua.Group) bool { return g.Name == webhooks.Group })
	if at < 0 { // its reader makes it
		return nil
	}
	from := groups[at].Delivered.Next()
	if groups[at].Pending > 0 {
		from = groups[at].Oldest
	}
	name := webhookPlace(partition)
	if strings.HasSuffix(written[name], " "+from.String()) {
		return nil
	}
	row := models.Setting{Name: name, Value: rand.Text() + " " + from.String()}
	if err := s.DB.WithContext(ctx).Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error; err != nil {
		return err
	}
	written[name] = row.Value
	return nil
}
