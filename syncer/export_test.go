package syncer

import "time"

func (l *Leader) LeaseFor(d time.Duration) *Leader {
	l.leaseFor = d
	return l
}
