package claiming

import (
	"context"
	"sync"
	"time"

	"dibs/api/wire"
	"dibs/models"
)

const (
	// userMaxFor bounds the age of the limits that refusals name.
	userMaxFor = time.Second
	// userMaxTimeout bounds reading them. A refusal is valid without them.
	userMaxTimeout = 200 * time.Millisecond
)

// userMax caches a campaign's per_user and per_user_per_day, which
// replies to claims lack.
type userMax struct {
	mu              sync.Mutex
	readAt          time.Time
	perUser, perDay int64
}

// nameLimit adds the units of the limit to refusals by per_user and
// per_user_per_day, as other limits' refusals have them. nil stays nil.
func (l *lane) nameLimit(p *wire.Problem) *wire.Problem {
	if p == nil || p.Code != wire.CodeUserLimit && p.Code != wire.CodeUserDayLimit {
		return p
	}
	now := l.cfg.Clock()
	m := &l.userMax
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.readAt) >= userMaxFor {
		l.readUserMax(m, now)
	}
	limit := p.Limit
	limit.Max = m.perUser
	if p.Code == wire.CodeUserDayLimit {
		limit.Max = m.perDay
	}
	return &wire.Problem{Code: p.Code, Limit: limit}
}

func (l *lane) readUserMax(m *userMax, now time.Time) {
	m.readAt = now
	ctx, cancel := context.WithTimeout(context.Background(), userMaxTimeout)
	defer cancel()
	state, err := l.cfg.States.State(ctx, l.anyLot())
	if err == nil {
		m.perUser = state.PerUser
		m.perDay = state.PerDay
	}
}

// anyLot is a lot of the campaign. All its shards have the same definition.
func (l *lane) anyLot() string {
	if l.meta.IsSharded() && !models.IsShardID(l.meta.ID) {
		return models.ShardID(l.meta.ID, 1)
	}
	return l.meta.ID
}
