package claiming

import (
	"sync/atomic"
	"time"

	"dibs/lua"
	"dibs/models"
)

// soldOutFor is how long a campaign is remembered as sold out. A restock by another process is seen within this time.
const soldOutFor = 50 * time.Millisecond

// soldOut remembers that a campaign has no unit left, so that a crowd that came too late costs Redis nothing. When the time is
// over all claims are let through: those that come while the first call is on its way share the next one, and a Redis that
// hangs is not taken for one that said no.
type soldOut struct {
	until atomic.Int64 // nanoseconds since 1970; 0 is not known to be sold out
	round atomic.Int64 // counts invalidate, so that a call that began before it can't set until
}

// refuses tells whether a claim without a key need not be sent.
func (s *soldOut) refuses(now time.Time) bool { return now.UnixNano() < s.until.Load() }

// invalidate is called when the stock may have changed by another way than a claim of this process, or is not known.
func (s *soldOut) invalidate() {
	s.round.Add(1)
	s.until.Store(0)
}

// learn takes the replies of a call that began in the given round at the given time. The stock is the reason of a refusal only
// where a claim passed the status and the window; a replay says nothing about them. Replies are as old as the begin of their
// call: a unit that came back since then is hidden for soldOutFor at most, however late the replies are read.
func (s *soldOut) learn(round int64, began time.Time, replies []lua.ClaimReply, remaining int64) {
	known, sold := false, false
	for i := range replies {
		switch replies[i].Outcome {
		case models.OutcomeReplayed, models.OutcomeIdempotencyMismatch:
		case models.OutcomeClaimed, models.OutcomeSoldOut:
			known, sold = true, true
		default:
			known = true
		}
	}
	switch {
	case !known:
	case sold && remaining == 0 && s.round.Load() == round:
		s.until.Store(began.Add(soldOutFor).UnixNano())
		if s.round.Load() != round {
			s.until.Store(0)
		}
	default:
		s.until.Store(0)
	}
}
