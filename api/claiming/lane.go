package claiming

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"dibs/api/breaker"
	"dibs/api/claiming/form"
	"dibs/api/coalesce"
	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

// queueMax bounds a campaign's waiting claims: a third of a second at
// 25,000 claims a second.
const queueMax = 8192

// lane handles one campaign's claims in this process.
type lane struct {
	cfg       *Config
	metrics   *metrics
	meta      lua.Meta
	coalescer *coalesce.Coalescer
	breaker   *breaker.Breaker
	soldOut   soldOut
	pace      pace // of a shard
	latest    latest
	tally     tally
	userMax   userMax
	used      atomic.Int64   // nanoseconds since 1970
	logSome   rate.Sometimes // an unreachable Redis fails every call

	loading  sync.Mutex
	loadedAt time.Time // the last attempt
	loadErr  error     // of the last attempt

	forget func() // drops all lanes of the campaign, which doesn't exist any more
}

func newLane(cfg *Config, m *metrics, meta lua.Meta, b *breaker.Breaker) *lane {
	l := &lane{cfg: cfg, metrics: m, meta: meta, breaker: b, logSome: rate.Sometimes{Interval: time.Second}}
	l.coalescer = coalesce.New(coalesce.Config{
		Call: l.call, Refuse: b.Refusal, Group: cfg.Workers, PerCall: cfg.ClaimsPerCall, InFlight: cfg.ClaimsInFlight, QueueMax: queueMax,
		WaitMax: cfg.QueueWait, Clock: cfg.Clock, Metrics: m.coalescers, Tracer: cfg.Tracer, CampaignID: meta.ID,
	})
	return l
}

// admit refuses a claim that need not be sent, or gives it its id. It
// checks soldOut after the other refusals: a claim that it lets
// through must be sent.
func (l *lane) admit(s *Routes, req *lua.ClaimRequest, now time.Time) *wire.Problem {
	if l.meta.Kind == models.KindPacket && req.Quantity != 1 {
		return wire.Invalid("quantity", "must be 1 in a packet campaign")
	}
	if by := l.meta.ShardBy; by != "" && req.Subjects[by] == "" {
		return form.Lacks(by)
	}
	if p := s.users.Refuse(req.UserID, now); p != nil {
		return p
	}
	if req.Key == "" {
		if p := l.refuse(req.Quantity, now); p != nil {
			return p
		}
	}
	var err error
	req.ID, err = uuid.NewV7()
	if err != nil || s.rows.IsFull() {
		return wire.Refuse(wire.CodeUnavailable)
	}
	return nil
}

// call makes one script call for the coalescer. It has its own
// timeout: a caller that leaves must not cancel the others' claims.
func (l *lane) call(reqs []lua.ClaimRequest) ([]lua.ClaimReply, error) {
	round := l.soldOut.round.Load()
	started := l.cfg.Clock()
	replies, view, err := l.send(reqs)
	if err == nil && l.handleMissing(replies, view) {
		switch loadErr := l.load(); {
		case loadErr == nil:
			replies, view, err = l.send(reqs) // the first call made no claim
		case errors.Is(loadErr, models.ErrNotFound):
			return nil, loadErr
		}
	}
	if err != nil {
		l.soldOut.invalidate()
		l.logSome.Do(func() {
			l.cfg.Logger.Warn("script call for claims failed, they are refused; is redis up?",
				slog.String("campaign_id", l.meta.ID), slog.Int("claims", len(reqs)), slog.Any("error", err))
		})
		return nil, err
	}
	if l.cfg.Rows == nil { // see awaitRows
		l.latest.advance(view.Position)
	}
	if l.meta.IsShard() {
		l.metrics.ofShard(l.meta.ID, replies)
		l.refillAhead(started, replies, view)
	}
	if !l.mayBeDry() {
		l.soldOut.learnFrom(round, started, replies, view.Remaining)
		for i := range replies {
			if replies[i].Outcome == models.OutcomeSoldOut {
				replies[i].Left = view.Remaining
			}
		}
	}
	return replies, nil
}

func (l *lane) send(reqs []lua.ClaimRequest) ([]lua.ClaimReply, lua.CampaignView, error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.CallTimeout)
	defer cancel()
	defer l.breaker.Watch(l.meta.ID)()
	return l.cfg.Claimer.ClaimAfter(ctx, l.meta, l.latest.position(), reqs)
}

// handleMissing reports whether Redis lacks the campaign or a part of
// it. Either all replies of a call say so, or none.
func (l *lane) handleMissing(replies []lua.ClaimReply, view lua.CampaignView) bool {
	if len(replies) == 0 {
		return false
	}
	switch replies[0].Outcome {
	case models.OutcomeAbsent:
		return true
	case models.OutcomeDamaged: // a lost part damages the whole call, which then has no view; a user's broken record does not
		return view == lua.CampaignView{}
	case models.OutcomeRolledBack:
		l.metrics.rolledBack.Inc()
		l.logSome.Do(func() {
			latest := l.latest.position()
			l.cfg.Logger.Error("redis was rolled back and lost claims that this process saw: claims are refused until the campaign is loaded again",
				slog.String("campaign_id", l.meta.ID), slog.Int64("epoch", view.Epoch), slog.Int64("seq", view.Seq),
				slog.Int64("seen_epoch", latest.Epoch), slog.Int64("seen_seq", latest.Seq))
		})
		return true
	default:
		return false
	}
}

// loadEvery limits the load attempts for a campaign that MySQL can't restore.
const loadEvery = 100 * time.Millisecond

// errOther means that the campaign was deleted, and another may have its id.
var errOther = fmt.Errorf("%w: the campaign is not the one that was looked up", lua.ErrUnavailable)

// load loads the campaign into Redis. After an error a call would not find
// it. Errors: models.ErrNotFound, errOther; any other means unavailable.
func (l *lane) load() error {
	l.loading.Lock()
	defer l.loading.Unlock()
	now := l.cfg.Clock()
	if now.Sub(l.loadedAt) < loadEvery {
		return l.loadErr
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	meta, err := l.cfg.Loader.Recover(ctx, l.meta.ID, l.latest.position())
	if at := l.latest.position(); at.Seq == 0 && at.Units == 0 { // else it can't be deleted
		err = l.unlessOther(meta, err)
	}
	if err != nil {
		l.logSome.Do(func() {
			l.cfg.Logger.Warn("campaign is not in redis and was not loaded, its claims are refused",
				slog.String("campaign_id", l.meta.ID), slog.Any("error", err))
		})
	}
	l.loadedAt = now
	l.loadErr = err
	return err
}

// unlessOther forgets a campaign that was deleted, and perhaps made again.
func (l *lane) unlessOther(now lua.Meta, err error) error {
	isGone := errors.Is(err, models.ErrNotFound)
	if !isGone && (err != nil || now.MadeMs == l.meta.MadeMs) {
		return err
	}
	l.forget()
	if isGone && !l.meta.IsShard() { // a campaign without this shard may have the id
		return err
	}
	return errOther
}

// latest is the last position of a campaign in Redis that this process saw.
type latest struct {
	mu sync.Mutex
	at lua.Position
}

func (l *latest) position() lua.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

func (l *latest) advance(to lua.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = l.at.Later(to)
}
