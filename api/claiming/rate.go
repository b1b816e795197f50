package claiming

import (
	"fmt"
	"math"
	"time"

	"dibs/api/wire"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// userRates bounds how often one user may ask this process. Users who were not seen for long are forgotten first, which
// gives them a fresh burst.
type userRates struct {
	perSecond float64
	users     *lru.Cache[string, *rate.Limiter]
}

// newUserRates returns nil when there is no limit.
func newUserRates(perSecond float64, usersMax int) (*userRates, error) {
	if perSecond == 0 {
		return nil, nil //nolint:nilnil // nil is no limit, see refuse
	}
	users, err := lru.New[string, *rate.Limiter](usersMax)
	if err != nil {
		return nil, fmt.Errorf("api: user rates: %w", err)
	}
	return &userRates{perSecond, users}, nil
}

// refuse returns nil when the user may ask now.
func (u *userRates) refuse(userID string, now time.Time) *wire.Problem {
	if u == nil {
		return nil
	}
	limiter, ok := u.users.Get(userID)
	if !ok {
		fresh := rate.NewLimiter(rate.Limit(u.perSecond), int(math.Ceil(u.perSecond)))
		if there, found, _ := u.users.PeekOrAdd(userID, fresh); found {
			limiter = there
		} else {
			limiter = fresh
		}
	}
	if limiter.AllowN(now, 1) {
		return nil
	}
	wait := (1 - limiter.TokensAt(now)) / u.perSecond
	return &wire.Problem{Code: wire.CodeRateLimited, RetryAfter: max(1, int(math.Ceil(wait)))}
}
