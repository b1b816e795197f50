package claiming

import (
	"sync/atomic"
	"time"

	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

// soldOutFor is how long a campaign is remembered as sold out. A restock
// by another process is seen within this time.
const soldOutFor = 50 * time.Millisecond

// soldOut remembers that a claim of so many units or more is too large for
// what a campaign has left, so that a crowd that came too late costs Redis
// nothing. When the time is over all claims are let through: those that
// come while the first call is on its way share the next one, and a Redis
// that hangs is not taken for one that said no.
type soldOut struct {
	known atomic.Pointer[knownSoldOut]
	round atomic.Int64 // counts invalidate, so that what was asked for before it refuses nothing
}

type knownSoldOut struct {
	from  int64 // units
	until time.Time
	round int64

	isAsked atomic.Bool // a claim was let through to find out again
}

// covers returns what is known that refuses a claim at a time; nil is
// nothing.
func (s *soldOut) covers(quantity int64, at time.Time) *knownSoldOut {
	if k := s.known.Load(); k != nil && quantity >= k.from && at.Before(k.until) && k.round == s.round.Load() {
		return k
	}
	return nil
}

// invalidate is called when the stock may have changed by another way than
// a claim of this process, or is not known.
func (s *soldOut) invalidate() { s.round.Add(1) }

func (s *soldOut) learn(round int64, began time.Time, from int64) {
	s.known.Store(&knownSoldOut{from: from, until: began.Add(soldOutFor), round: round})
}

// proveAfter is when it is proven again that a campaign of several shards
// is sold out: while that holds, so that a crowd need not wait.
const proveAfter = soldOutFor / 2

// refuse says why a claim without a key need not be sent; nil is send it.
// Of a campaign of several shards, one claim is let through in time, and
// finds out again whether the campaign is open among the rest.
func (l *lane) refuse(quantity int64, now time.Time) *wire.Problem {
	k := l.soldOut.covers(quantity, now)
	switch {
	case k == nil:
		return nil
	case l.meta.IsSharded() && !now.Add(proveAfter).Before(k.until) && k.isAsked.CompareAndSwap(false, true):
		return nil
	}
	return soldOutWith(k.from - 1)
}

// learnFrom takes the replies of a call that started in the given round at
// the given time. The stock is the reason of a refusal only where a claim
// passed the status and the window; a replay says nothing about them.
// Replies are as old as the begin of their call: a unit that came back
// since then is hidden for soldOutFor at most, however late the replies
// are read.
func (s *soldOut) learnFrom(round int64, began time.Time, replies []lua.ClaimReply, remaining int64) {
	known := false
	sold := false
	for i := range replies {
		switch replies[i].Outcome {
		case models.OutcomeReplayed, models.OutcomeIdempotencyMismatch:
		case models.OutcomeClaimed, models.OutcomeSoldOut:
			known = true
			sold = true
		default:
			known = true
		}
	}
	switch {
	case !known:
	case sold && remaining == 0:
		s.learn(round, began, 1)
	default:
		s.known.Store(nil)
	}
}
