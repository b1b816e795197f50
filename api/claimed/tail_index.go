package claimed

import (
	"errors"
	"slices"
	"sync"

	"dibs/lua"
	"dibs/models"
)

var (
	// errTailFull says that more claims are not in MySQL yet than are kept in memory: a claim that is not among them may be
	// among the others.
	errTailFull = errors.New("api: too many claims are unsynced")
	// errTailGone says that an entry that was read and is not acknowledged is not in the stream any more: Redis lost some of it,
	// or all.
	errTailGone = errors.New("api: what was read of the claim stream is gone")
)

// tailIndex is the claims of the parts of the claim streams that a group has not acknowledged. One round at a time changes
// it, any number may read it.
type tailIndex struct {
	most int

	mu     sync.RWMutex
	parts  []tailPart
	byID   map[string]*models.Event
	byUser map[string][]*models.Event
}

// tailPart is what is known of one partition's stream.
type tailPart struct {
	read lua.EntryID // the last entry that was read and is not acknowledged; zero is none
	kept []tailClaim // in the order of the stream
}

type tailClaim struct {
	at    lua.EntryID
	claim *models.Event
}

func newTailIndex(partitions, most int) *tailIndex {
	return &tailIndex{
		most: most, parts: make([]tailPart, partitions),
		byID: make(map[string]*models.Event), byUser: make(map[string][]*models.Event),
	}
}

func (x *tailIndex) claim(id string) *models.Event {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.byID[id]
}

func (x *tailIndex) ofUser(userID string) []*models.Event {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clone(x.byUser[userID])
}

func (x *tailIndex) size() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.byID)
}

// advance drops what comes before first, the first entry that is not acknowledged, and tells where to read on: at the last
// entry that was read, which must still be there.
func (x *tailIndex) advance(partition int, first lua.EntryID) (from lua.EntryID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	part := &x.parts[partition]
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

// drop takes a claim out. A user's claims of one partition go in the order in which they came.
func (x *tailIndex) drop(claim *models.Event) {
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

// add takes in a page that begins where advance, or add before it, said, and tells where the next one begins.
func (x *tailIndex) add(partition int, page []lua.Entry) (from lua.EntryID, err error) {
	claims := decodeClaims(page)
	x.mu.Lock()
	defer x.mu.Unlock()
	part := &x.parts[partition]
	if part.read != (lua.EntryID{}) {
		if len(page) == 0 || page[0].ID != part.read {
			return from, errTailGone
		}
		page, claims = page[1:], claims[1:] // it was taken in before
	}
	for i, claim := range claims {
		if claim != nil && x.byID[claim.ID] == nil {
			if len(x.byID) >= x.most {
				return part.read, errTailFull
			}
			part.kept = append(part.kept, tailClaim{page[i].ID, claim})
			x.byID[claim.ID] = claim
			x.byUser[claim.UserID] = append(x.byUser[claim.UserID], claim)
		}
		part.read = page[i].ID
	}
	return part.read, nil
}

// decodeClaims gives the claim of each entry; nil where it tells of none. What can't be read is not a claim that anybody
// was told of: the consumer puts it aside.
func decodeClaims(page []lua.Entry) []*models.Event {
	claims := make([]*models.Event, len(page))
	for i := range page {
		if e, err := models.DecodeEvent([]byte(page[i].Payload)); err == nil && e.Type == models.EventClaimAccepted {
			claims[i] = &e
		}
	}
	return claims
}
