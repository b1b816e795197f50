package claiming

import (
	"sync/atomic"
	"time"

	"dibs/lua"
	"dibs/models"
)

// soldOut remembers for a moment that a campaign has nothing left, so that a crowd that came too late costs Redis nothing.
// When the moment is over everybody is let through: who comes while the first call is on its way shares the next one, and
// a Redis that hangs is not taken for one that said no.
type soldOut struct {
	lasts time.Duration
	until atomic.Int64 // nanoseconds since 1970; 0 is not known to be sold out
	round atomic.Int64 // counts forget, so that a call from before it can't bring the mark back
}

// refuses tells whether a claim without a key need not be sent at all.
func (s *soldOut) refuses(now time.Time) bool { return now.UnixNano() < s.until.Load() }

// forget is for a campaign that was changed by this process.
func (s *soldOut) forget() {
	s.round.Add(1)
	s.until.Store(0)
}

// learn takes what a call found that began in the given round at the given time. Only a claim that passed the status and the
// window says that the reason is the stock; a replay says nothing about either. What a call found is as old as its begin: a unit
// that came back since is hidden by it for no longer than lasts, however late the reply is read.
func (s *soldOut) learn(round int64, began time.Time, replies []lua.ClaimReply, remaining int64) {
	told, sold := false, false
	for i := range replies {
		switch replies[i].Outcome {
		case models.OutcomeReplayed, models.OutcomeIdempotencyMismatch:
		case models.OutcomeClaimed, models.OutcomeSoldOut:
			told, sold = true, true
		default:
			told = true
		}
	}
	switch {
	case !told:
	case sold && remaining == 0 && s.round.Load() == round:
		s.until.Store(began.Add(s.lasts).UnixNano())
		if s.round.Load() != round {
			s.until.Store(0)
		}
	default:
		s.until.Store(0)
	}
}

// doubt is for a call that failed: what it went to look for is not known.
func (s *soldOut) doubt() { s.until.Store(0) }
