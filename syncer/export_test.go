package syncer

import "time"

// LeaseFor sets the length of l's leases.
func (l *Leader) LeaseFor(d time.Duration) *Leader {
	l.leaseFor = d
	return l
}
