package claimed

import (
	"errors"
	"slices"
	"sync"

	"dibs/lua"
	"dibs/models"
)

var (
	// errFull says that more claims are unsynced than are kept in memory: a claim that is not found may be one of the others.
	errFull = errors.New("claimed: too many claims are unsynced")
	// errGone says that an entry that was read and is not acknowledged is no longer in the stream: Redis lost a part of it.
	errGone = errors.New("claimed: entries of the claim stream that were read are gone")
)

// index is the claims in the claim streams that group syncer has not acknowledged. One refresh at a time changes it, any number
// of look-ups read it.
type index struct {
	most int

	mu     sync.RWMutex
	parts  []partition
	byID   map[string]*models.Event
	byUser map[string][]*models.Event
}

// partition is what is known of one partition's stream.
type partition struct {
	read lua.EntryID // the last entry that was read and is not acknowledged; zero is none
	kept []entry     // in the order of the stream
}

type entry struct {
	at    lua.EntryID
	claim *models.Event
}

func newIndex(partitions, most int) *index {
	return &index{
		most: most, parts: make([]partition, partitions),
		byID: make(map[string]*models.Event), byUser: make(map[string][]*models.Event),
	}
}

func (x *index) claim(id string) *models.Event {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.byID[id]
}

func (x *index) ofUser(userID string) []*models.Event {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clone(x.byUser[userID])
}

func (x *index) size() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.byID)
}

// advance drops the claims before first, the first entry that is not acknowledged, and reports where to read on: at the last entry
// that was read, which must still be there.
func (x *index) advance(p int, first lua.EntryID) (from lua.EntryID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	part := &x.parts[p]
	acked := 0
	for acked < len(part.kept) && part.kept[acked].at.Less(first) {
		x.drop(part.kept[acked].claim)
		acked++
	}
	clear(part.kept[:acked])
	part.kept = part.kept[acked:]
	if part.read.Less(first) {
		part.read = lua.EntryID{}
		part.kept = nil
		return first
	}
	return part.read
}

// drop drops a claim. The claims of a user in one partition are dropped in the order in which they came.
func (x *index) drop(claim *models.Event) {
	delete(x.byID, claim.ID)
	claims := x.byUser[claim.UserID]
	at := slices.Index(claims, claim)
	switch {
	case len(claims) == 1:
		delete(x.byUser, claim.UserID)
	case at == 0:
		x.byUser[claim.UserID] = claims[1:]
	default:
		x.byUser[claim.UserID] = slices.Delete(claims, at, at+1)
	}
}

// add adds a page that begins where advance, or the add before it, said, and reports where the next page begins.
func (x *index) add(p int, page []lua.Entry) (from lua.EntryID, err error) {
	claims := decodeClaims(page)
	x.mu.Lock()
	defer x.mu.Unlock()
	part := &x.parts[p]
	if part.read != (lua.EntryID{}) {
		if len(page) == 0 || page[0].ID != part.read {
			return from, errGone
		}
		page = page[1:]
		claims = claims[1:] // the last call added it
	}
	for i, claim := range claims {
		if claim != nil && x.byID[claim.ID] == nil {
			if len(x.byID) >= x.most {
				return part.read, errFull
			}
			part.kept = append(part.kept, entry{page[i].ID, claim})
			x.byID[claim.ID] = claim
			x.byUser[claim.UserID] = append(x.byUser[claim.UserID], claim)
		}
		part.read = page[i].ID
	}
	return part.read, nil
}

// decodeClaims gives the claim of each entry, nil where there is none. An entry that can't be read is no claim that a user was
// told of: the consumer moves it to the poison stream.
func decodeClaims(page []lua.Entry) []*models.Event {
	claims := make([]*models.Event, len(page))
	for i := range page {
		if e, err := models.DecodeEvent([]byte(page[i].Payload)); err == nil && e.Type == models.EventClaimAccepted {
			claims[i] = &e
		}
	}
	return claims
}
