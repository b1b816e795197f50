package sqlstore

import (
	"time"
)

// now is the time as MySQL keeps it.
func Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
