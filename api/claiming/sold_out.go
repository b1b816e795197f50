package claiming

import (
	"sync/atomic"
	"time"

	"dibs/api/claiming/form"
	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

// soldOutFor is how long a campaign is remembered as sold out. A
// restock by another process is noticed within this time.
const soldOutFor = 50 * time.Millisecond

// soldOut remembers that claims of a given size or larger exceed what the
// campaign has left. So a crowd that is too late costs Redis nothing. When
// the time is over, all claims pass: those that arrive during the first call
// share the next, and a hanging Redis isn't mistaken for a refusal.
type soldOut struct {
	known atomic.Pointer[knownSoldOut]
	round atomic.Int64 // counts invalidate: replies to earlier calls refuse nothing
}

type knownSoldOut struct {
	from  int64 // units
	until time.Time
	round int64

	isAsked atomic.Bool // one claim was let through to check again
}

// covers returns the knowledge that refuses a claim at this time, or nil.
func (s *soldOut) covers(quantity int64, at time.Time) *knownSoldOut {
	if k := s.known.Load(); k != nil && quantity >= k.from && at.Before(k.until) && k.round == s.round.Load() {
		return k
	}
	return nil
}

// invalidate is called when the stock is unknown, or may have changed
// other than by a claim of this process.
func (s *soldOut) invalidate() { s.round.Add(1) }

func (s *soldOut) learn(round int64, started time.Time, from int64) {
	s.known.Store(&knownSoldOut{from: from, until: started.Add(soldOutFor), round: round})
}

// proveAfter is when the proof that a sharded campaign is sold out is
// renewed: before it ends, so that no claim waits for it.
const proveAfter = soldOutFor / 2

// refuse refuses a claim without a key that need not be sent; nil means send
// it. In a sharded campaign it lets one claim through early, to check again
// whether the campaign is still sold out, paused or closed.
func (l *lane) refuse(quantity int64, now time.Time) *wire.Problem {
	k := l.soldOut.covers(quantity, now)
	switch {
	case k == nil:
		return nil
	case l.meta.IsSharded() && !now.Add(proveAfter).Before(k.until) && k.isAsked.CompareAndSwap(false, true):
		return nil
	}
	return form.SoldOut(k.from - 1)
}

// learnFrom takes the replies of a call that started in this round at
// this time. Stock is the reason of a refusal only if a claim passed
// status and window. A replay shows neither. Replies are as old as
// their call's start. So a returned unit is hidden for at most
// soldOutFor, however late the replies are read.
func (s *soldOut) learnFrom(round int64, started time.Time, replies []lua.ClaimReply, remaining int64) {
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
		s.learn(round, started, 1)
	default:
		s.known.Store(nil)
	}
}
