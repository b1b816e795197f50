package apply

import (
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/parking"
)

// Why an event is parked, in a word: the label reason of a metric.
const (
	parkedData            = "data"             // the database refuses the row
	parkedID              = "id_taken"         // a different claim has its id
	parkedUnknownCampaign = "unknown_campaign" // its campaign does not exist
	parkedUnreadable      = "unreadable"       // its entry is no event
	parkedPacket          = "packet_taken"     // its packet can't be assigned to its claim
)

// Parked is an event that can never be written.
type Parked struct {
	stored.ParkedEvent

	Kind string
}

// park takes a row that can never be written out
// of the batch. Its entry counts as applied.
func (a *application) park(r *event.Raw, kind, reason string) {
	a.Parked = append(a.Parked, Parked{parking.Row(r, reason), kind})
}

func (a *application) insertParked() error {
	for i := range a.Parked {
		if a.b.whole {
			return sqlstore.Final(fmt.Errorf("%w: %s: %s", errRefused, a.Parked[i].ID, a.Parked[i].Reason))
		}
		if err := parking.Put(a.tx, &a.Parked[i].ParkedEvent, a.clock.Now()); err != nil {
			return err
		}
	}
	return nil
}
