package recovery

import "dibs/models"

// State is where a lot is on its way into Redis and out of it.
type State string

// The states of a lot.
const (
	Cold      State = "Cold"      // not resident, and Redis does not hold it
	Copied    State = "Copied"    // not confirmed: Redis holds a copy that a loader made
	Confirmed State = "Confirmed" // resident, and the copy is not open yet
	Open      State = "Open"      // resident, and Redis takes its claims
	Leaving   State = "Leaving"   // evicted by Redis, resident by MySQL
	Doubt     State = "Doubt"     // Redis and MySQL contradict each other
	Lost      State = "Lost"      // Redis takes no claims until it is proven, or an operator repairs it
)

func (l *Lot) state() State {
	isLoading := l.Redis.Held == Present && l.Redis.Status == models.StatusLoading
	switch {
	case l.IsSound() && isLoading:
		return Confirmed
	case l.IsSound():
		return Open
	case l.MySQL.Residency == models.ResidencyResident && l.IsEvicted():
		return Leaving
	case l.IsTaking(), l.MySQL.Residency == models.ResidencyResident, l.isAway() && l.isStrange():
		return Doubt
	case isLoading && l.isCopied():
		return Copied
	case l.isLost():
		return Lost
	}
	return Cold
}

// Waiting is what a wait is for and who ends it.
type Waiting struct{ For, By string }

// Waits has a line for each action that waits.
var Waits = map[Action]Waiting{
	WaitReplica:   {"MySQL has every flush that Redis remembers", "a replica that lags, or the partition is stopped"},
	WaitLoader:    {"the load under way is confirmed, or its time is over", "the process that loads the lot"},
	WaitConsumers: {"group syncer has acknowledged the stream up to the lot's fence tip", "the consumers"},
}
