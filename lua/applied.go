package lua

import (
	"strconv"
	"strings"
	"sync"

	"dibs/models"
)

// applied is how far this process knows that MySQL has applied the claim streams, by partition. A MySQL that is further behind was restored,
// or is a replica that lacks commits: what it says of claims and campaigns may be undone by what it is yet to apply.
type applied struct {
	mu sync.Mutex
	at map[int]appliedAt
}

type appliedAt struct {
	generation int64
	entry      EntryID
}

func (a appliedAt) less(b appliedAt) bool {
	return a.generation < b.generation || a.generation == b.generation && a.entry.Less(b.entry)
}

// IsBehind reports whether MySQL, which is at an offset, is behind what this process knows that it had applied of a partition. If not, the
// process knows that offset from then on.
func (s *Scripts) IsBehind(partition int, at models.Offset) (bool, error) {
	entry, err := ParseEntryID(at.EntryID)
	if err != nil {
		return false, err
	}
	return s.applied.isBehind(partition, appliedAt{at.Generation, entry}), nil
}

func (a *applied) isBehind(partition int, at appliedAt) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at.less(a.at[partition]) {
		return true
	}
	if a.at == nil {
		a.at = make(map[int]appliedAt)
	}
	a.at[partition] = at
	return false
}

// signalOf is what Signal tells of an offset.
func signalOf(at models.Offset) string {
	return strconv.FormatInt(at.Generation, 10) + " " + at.EntryID + " " + at.EventID
}

// hear takes up what Signal told of an offset.
func (a *applied) hear(partition int, signal string) {
	parts := strings.SplitN(signal, " ", 3)
	if len(parts) < 3 {
		return
	}
	generation, err := strconv.ParseInt(parts[0], 10, 64)
	entry, malformed := ParseEntryID(parts[1])
	if err == nil && malformed == nil {
		_ = a.isBehind(partition, appliedAt{generation, entry})
	}
}
