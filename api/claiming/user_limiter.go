package claiming

import (
	"math"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"dibs/api/wire"
)

// usersMax bounds the users whose rate is remembered. Those that were not seen for longest are forgotten first, and start anew.
const usersMax = 100_000

// userLimiter bounds the claims a second of each user in this process. A nil one has no limit.
type userLimiter struct {
	perSecond float64
	users     *lru.Cache[string, *rate.Limiter]
}

func newUserLimiter(perSecond float64) *userLimiter {
	if perSecond == 0 {
		return nil
	}
	users, err := lru.New[string, *rate.Limiter](usersMax)
	if err != nil { // of a size below 1
		panic(err)
	}
	return &userLimiter{perSecond, users}
}

// refuse returns nil when the user may claim now.
func (u *userLimiter) refuse(userID string, now time.Time) *wire.Problem {
	if u == nil {
		return nil
	}
	limiter, found := u.users.Get(userID)
	if !found {
		limiter = rate.NewLimiter(rate.Limit(u.perSecond), int(math.Ceil(u.perSecond)))
		if other, found, _ := u.users.PeekOrAdd(userID, limiter); found {
			limiter = other
		}
	}
	if limiter.AllowN(now, 1) {
		return nil
	}
	wait := (1 - limiter.TokensAt(now)) / u.perSecond
	return &wire.Problem{
		Code: wire.CodeRateLimited, RetryAfter: max(1, int(math.Ceil(wait))), Rate: wire.NewRate("user", u.perSecond, limiter.Burst()),
	}
}
