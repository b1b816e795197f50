package apply

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models/event"

	"github.com/jonboulle/clockwork"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// errRefused reports that MySQL refused a row of an all-or-nothing write.
var errRefused = errors.New("apply: MySQL refuses a claim")

// Write writes events that are in no stream,
// all or none. Errors: see FailureOf.
func Write(ctx context.Context, db *gorm.DB, events ...event.Event) error {
	b, err := Of(events...)
	if err != nil {
		return err
	}
	b.whole = true
	s := New(db, 1, clockwork.NewRealClock(), &steps.Steps{})
	return sqlstore.Retry(ctx, func() error {
		_, err := s.Apply(ctx, b)
		return err
	})
}

// refuseDiscarded refuses an all-or-nothing write of a parked claim that was
// given up since it was read. It locks the row: who gives it up waits.
func (a *application) refuseDiscarded() error {
	if !a.b.whole {
		return nil
	}
	var parked []struct {
		ID        string
		Discarded bool
	}
	err := a.tx.Table("parked_events").Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).
		Select("id, discarded_at IS NOT NULL AS discarded").Where("id IN ?", idsOf(a.b.Rows)).Find(&parked).Error
	if err != nil {
		return err
	}
	for i := range parked {
		if parked[i].Discarded {
			return fmt.Errorf("%w: %s was given up", errRefused, parked[i].ID)
		}
	}
	return nil
}

// FailureOf classifies an error of a write. A
// claim that contradicts MySQL is FailureData.
func FailureOf(err error) sqlstore.Failure {
	if errors.Is(err, errPacketTaken) || errors.Is(err, errRefused) {
		return sqlstore.FailureData
	}
	return sqlstore.FailureOf(err)
}
