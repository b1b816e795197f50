package claiming

import (
	"context"
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"dibs/api/wire"
	"dibs/api/workers"
	"dibs/internal/sleep"
	"dibs/internal/softstate"
)

const (
	// usersMax bounds the users whose rate is remembered. Those that were
	// not seen for longest are forgotten first, and start over.
	usersMax = 100_000
	// exchangePause lies between two exchanges with other processes, so
	// that no claim waits for one.
	exchangePause = 100 * time.Millisecond
	// maxExchange bounds the users of one exchange. Others are limited by
	// their process alone in the meantime.
	maxExchange = 10_000
)

// AttemptCounter is where API processes tell each other how often users
// tried to claim. lua.Scripts implements it.
type AttemptCounter interface {
	AddAttempts(ctx context.Context, byUser map[string]int64) (all map[string]int64, err error)
}

// userLimiter bounds the claims a second of each user, in this process,
// and with tries in all of them. A nil one has no limit.
type userLimiter struct {
	perSecond float64
	users     *lru.Cache[string, *limitedUser]
	tries     AttemptCounter // nil: other processes are not asked
	workers   *workers.Group
	clock     func() time.Time

	mu        sync.Mutex
	untold    map[string]*limitedUser // who tried since the last exchange
	exchanges bool                    // one is under way
}

type limitedUser struct {
	*rate.Limiter
	tried int64 // here, since the last exchange; the limiter's mu guards it
	known int64 // at all processes, at the last exchange
}

func newUserLimiter(cfg *Config) *userLimiter {
	if cfg.UserRate == 0 {
		return nil
	}
	users, err := lru.New[string, *limitedUser](usersMax)
	if err != nil { // of a size below 1
		panic(err)
	}
	return &userLimiter{
		perSecond: cfg.UserRate, users: users, tries: cfg.Attempts, workers: cfg.Workers, clock: cfg.Clock, untold: make(map[string]*limitedUser),
	}
}

func (u *userLimiter) refuse(userID string, now time.Time) *wire.Problem {
	if u == nil {
		return nil
	}
	user, found := u.users.Get(userID)
	if !found {
		user = &limitedUser{Limiter: rate.NewLimiter(rate.Limit(u.perSecond), int(math.Ceil(u.perSecond)))}
		if other, found, _ := u.users.PeekOrAdd(userID, user); found {
			user = other
		}
	}
	if user.AllowN(now, 1) {
		u.note(userID, user)
		return nil
	}
	wait := (1 - user.TokensAt(now)) / u.perSecond
	return &wire.Problem{
		Code: wire.CodeRateLimited, RetryAfter: max(1, int(math.Ceil(wait))), Rate: wire.NewRate("user", u.perSecond, user.Burst()),
	}
}

// note has the other processes told of a try, in a moment and not by the
// claim's own goroutine.
func (u *userLimiter) note(userID string, user *limitedUser) {
	if u.tries == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	user.tried++
	if user.tried == 1 && len(u.untold) < maxExchange {
		u.untold[userID] = user
	}
	if !u.exchanges {
		u.exchanges = u.workers.Go(u.exchangeAll)
	}
}

// exchangeAll goes on until there is no one to tell of.
func (u *userLimiter) exchangeAll() {
	ctx := context.Background()
	for {
		_ = sleep.For(ctx, exchangePause)
		u.mu.Lock()
		users := u.untold
		byUser := make(map[string]int64, len(u.untold))
		u.exchanges = len(users) > 0
		if !u.exchanges {
			u.mu.Unlock()
			return
		}
		u.untold = make(map[string]*limitedUser)
		for id, user := range users {
			byUser[id] = user.tried
			user.tried = 0
		}
		u.mu.Unlock()
		callCtx, cancel := context.WithTimeout(ctx, softstate.AttemptTTL)
		all, err := u.tries.AddAttempts(callCtx, byUser)
		cancel()
		if err != nil {
			continue // Redis is away: each process keeps to the limit by itself
		}
		now := u.clock()
		for id, total := range all {
			u.charge(users[id], byUser[id], total, now)
		}
	}
}

// charge takes from a user what other processes let through since the last
// exchange.
func (u *userLimiter) charge(user *limitedUser, here, total int64, now time.Time) {
	others := total - user.known - here
	if others < 0 { // the count started over
		others = total - here
	}
	user.known = total
	burst := user.Burst()
	for left := min(others, int64(u.perSecond*softstate.AttemptTTL.Seconds())+1); left > 0; left -= int64(burst) {
		user.ReserveN(now, int(min(left, int64(burst))))
	}
}
