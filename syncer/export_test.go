package syncer

import "time"

// LeaseFor has l hold leases of that length.
func (l *Leader) LeaseFor(d time.Duration) *Leader {
	l.leaseFor = d
	return l
}
