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
	// usersMax bounds the users whose rate is remembered. The least
	// recently seen are dropped and start over.
	usersMax = 100_000
	// exchangePause is the time between two exchanges with other
	// processes. No claim waits for one.
	exchangePause = 100 * time.Millisecond
	// maxExchange bounds the users of one exchange. Until the next,
	// the others are limited by their process alone.
	maxExchange = 10_000
)

// AttemptCounter lets API processes share how often users tried to
// claim. lua.Scripts implements it.
type AttemptCounter interface {
	AddAttempts(ctx context.Context, byUser map[string]int64) (all map[string]int64, err error)
}

// userLimiter limits each user's claims a second, in this process, and
// with tries across all of them. A nil one has no limit.
type userLimiter struct {
	perSecond float64
	users     *lru.Cache[string, *limitedUser]
	tries     AttemptCounter // nil: not shared with other processes
	workers   *workers.Group
	clock     func() time.Time

	mu         sync.Mutex
	unreported map[string]*limitedUser // users who tried since the last exchange
	exchanges  bool                    // an exchange is running
}

type limitedUser struct {
	*rate.Limiter
	tried int64 // here, since the last exchange; guarded by the limiter's mu
	known int64 // in all processes, as of the last exchange
}

func newUserLimiter(cfg *Config) *userLimiter {
	if cfg.UserRate == 0 {
		return nil
	}
	users, err := lru.New[string, *limitedUser](usersMax)
	if err != nil { // for a size below 1
		panic(err)
	}
	return &userLimiter{
		perSecond: cfg.UserRate, users: users, tries: cfg.Attempts, workers: cfg.Workers, clock: cfg.Clock,
		unreported: make(map[string]*limitedUser),
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

// note has a later exchange report a try. The claim's own goroutine
// doesn't wait for it.
func (u *userLimiter) note(userID string, user *limitedUser) {
	if u.tries == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	user.tried++
	if u.unreported[userID] == nil && len(u.unreported) < maxExchange {
		u.unreported[userID] = user
	}
	if !u.exchanges {
		u.exchanges = u.workers.Go(u.exchangeAll)
	}
}

func (u *userLimiter) exchangeAll() {
	ctx := context.Background()
	for {
		_ = sleep.For(ctx, exchangePause)
		u.mu.Lock()
		users := u.unreported
		byUser := make(map[string]int64, len(u.unreported))
		u.exchanges = len(users) > 0
		if !u.exchanges {
			u.mu.Unlock()
			return
		}
		u.unreported = make(map[string]*limitedUser)
		for id, user := range users {
			byUser[id] = user.tried
			user.tried = 0
		}
		u.mu.Unlock()
		callCtx, cancel := context.WithTimeout(ctx, softstate.AttemptTTL)
		all, err := u.tries.AddAttempts(callCtx, byUser)
		cancel()
		if err != nil {
			continue // Redis is unreachable: each process limits by itself
		}
		now := u.clock()
		for id, total := range all {
			u.charge(users[id], byUser[id], total, now)
		}
	}
}

// charge deducts what other processes let through since the last exchange.
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
