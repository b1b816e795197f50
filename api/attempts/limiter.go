// Package attempts limits how often a user may try to claim, in a process
// and over all of them.
package attempts

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
	// PerExchange bounds the users of one exchange. Until the next,
	// the others are limited by their process alone.
	PerExchange = 10_000
)

// Counter lets API processes share how often users tried to
// claim. softstate.Store implements it.
type Counter interface {
	AddAttempts(ctx context.Context, byUser map[string]int64) (all map[string]int64, err error)
}

// Config configures a Limiter.
type Config struct {
	PerSecond float64 // claims of a user; 0: no limit
	Counter   Counter // nil: not shared with other processes
	Workers   *workers.Group
	Clock     func() time.Time
}

// Limiter limits each user's claims a second. A nil one has no limit.
type Limiter struct {
	cfg   Config
	users *lru.Cache[string, *limitedUser]

	mu         sync.Mutex
	unreported map[string]*limitedUser // users who tried since the last exchange
	exchanges  bool                    // an exchange is running
}

type limitedUser struct {
	*rate.Limiter
	tried int64 // here, since the last exchange; guarded by the limiter's mu
	known int64 // in all processes, as of the last exchange
}

// New returns a Limiter, or nil without a limit.
func New(cfg Config) *Limiter {
	if cfg.PerSecond == 0 {
		return nil
	}
	users, err := lru.New[string, *limitedUser](usersMax)
	if err != nil { // for a size below 1
		panic(err)
	}
	return &Limiter{cfg: cfg, users: users, unreported: make(map[string]*limitedUser)}
}

// Refuse refuses a user who tries too often; nil means that this try counts.
func (u *Limiter) Refuse(userID string, now time.Time) *wire.Problem {
	if u == nil {
		return nil
	}
	user, found := u.users.Get(userID)
	if !found {
		user = &limitedUser{Limiter: rate.NewLimiter(rate.Limit(u.cfg.PerSecond), int(math.Ceil(u.cfg.PerSecond)))}
		if other, found, _ := u.users.PeekOrAdd(userID, user); found {
			user = other
		}
	}
	if user.AllowN(now, 1) {
		u.note(userID, user)
		return nil
	}
	wait := (1 - user.TokensAt(now)) / u.cfg.PerSecond
	return &wire.Problem{
		Code: wire.CodeRateLimited, RetryAfter: max(1, int(math.Ceil(wait))), Rate: wire.NewRate("user", u.cfg.PerSecond, user.Burst()),
	}
}

// note has a later exchange report a try. The claim's own goroutine
// doesn't wait for it.
func (u *Limiter) note(userID string, user *limitedUser) {
	if u.cfg.Counter == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	user.tried++
	if u.unreported[userID] == nil && len(u.unreported) < PerExchange {
		u.unreported[userID] = user
	}
	if !u.exchanges {
		u.exchanges = u.cfg.Workers.Go(u.exchangeAll)
	}
}

func (u *Limiter) exchangeAll() {
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
		all, err := u.cfg.Counter.AddAttempts(callCtx, byUser)
		cancel()
		if err != nil {
			continue // Redis is unreachable: each process limits by itself
		}
		now := u.cfg.Clock()
		for id, total := range all {
			u.charge(users[id], byUser[id], total, now)
		}
	}
}

// charge deducts what other processes let through since the last exchange.
func (u *Limiter) charge(user *limitedUser, here, total int64, now time.Time) {
	others := total - user.known - here
	if others < 0 { // the count started over
		others = total - here
	}
	user.known = total
	burst := user.Burst()
	for left := min(others, int64(u.cfg.PerSecond*softstate.AttemptTTL.Seconds())+1); left > 0; left -= int64(burst) {
		user.ReserveN(now, int(min(left, int64(burst))))
	}
}
