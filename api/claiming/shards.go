package claiming

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"dibs/api/coalesce"
	"dibs/api/rows"
	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
)

// A campaign routes claims to the lanes of its shards. If it has one shard,
// its own lane is that shard's. If it has several, its own lane makes no
// calls. The shard follows from the user, or from the value of the campaign's
// shard_by. One of several shards is dry if it has fewer free units than a
// claim needs. That is no refusal: the claim is held while the mover searches
// the other shards. The campaign is sold out only if the mover has proven it.
// Packets stay in their shard, so a shard without packets refuses by itself.

const (
	maxRefillWait = 300 * time.Millisecond // of a claim held for a dry shard
	// of one refill: debited units are credited even if no claim waits
	// any more.
	refillTimeout = 5 * time.Second
	holdPause     = 5 * time.Millisecond // before a failed refill is retried
)

var errDry = fmt.Errorf("%w: the shard of the campaign is out of units, and where there are others could not be found out in time",
	lua.ErrUnavailable)

// byShard learns from a shard that the campaign has several, while
// MySQL is unreachable. why is the error if it doesn't.
func (ls *lanes) byShard(ctx context.Context, id string, why error) (lua.Meta, error) {
	if models.IsShardID(id) {
		return lua.Meta{}, why
	}
	state, err := ls.cfg.States.State(ctx, models.ShardID(id, 1))
	if err != nil {
		return lua.Meta{}, why
	}
	meta := state.Meta
	meta.ID = id
	return meta, nil
}

// shardOf finds the lane of a shard, which makes the calls. A
// campaign's only shard is the campaign itself.
func (s *Routes) shardOf(ctx context.Context, campaign *lane, shard int) (*lane, error) {
	if !campaign.meta.IsSharded() {
		return campaign, nil
	}
	return s.lanes.get(ctx, models.ShardID(campaign.meta.ID, shard), s.cfg.Clock())
}

func (s *Routes) send(ctx context.Context, l *lane, req lua.ClaimRequest) coalesce.Ticket {
	shard, err := s.shardOf(ctx, l, l.meta.ShardOf(req.UserID, req.Subjects))
	if err != nil {
		return coalesce.Ticket{Request: req, Answer: coalesce.Answer{Err: s.unavailable(ctx, l, err)}}
	}
	if k := shard.soldOut.covers(req.Quantity, s.cfg.Clock()); k != nil && shard != l && req.Key == "" {
		return coalesce.Ticket{Request: req, Answer: coalesce.Answer{Reply: lua.ClaimReply{Outcome: models.OutcomeSoldOut, Left: k.from - 1}}}
	}
	t := shard.coalescer.Claim(ctx, req)
	sent := []sentClaim{{l, shard, &t}}
	if isDry(&t) {
		s.hold(ctx, sent)
	}
	s.awaitRows(ctx, sent)
	return t
}

// unavailable is the error of a claim whose shard wasn't found. It logs why.
func (s *Routes) unavailable(ctx context.Context, l *lane, err error) error {
	l.logSome.Do(func() {
		s.cfg.Logger.WarnContext(ctx, "a shard of a campaign could not be looked up, its claims are refused; are redis and mysql up?",
			slog.String("campaign_id", l.meta.ID), slog.Any("error", err))
	})
	return fmt.Errorf("%w: %w", lua.ErrUnavailable, err)
}

// mayBeDry reports whether other shards may have units when this lane
// has none.
func (l *lane) mayBeDry() bool { return l.meta.IsShard() && l.meta.Kind != models.KindPacket }

func isDry(t *coalesce.Ticket) bool {
	return t.Err == nil && t.Reply.Outcome == models.OutcomeDry
}

// byShard splits the parts by shard. A campaign's only shard is the campaign
// itself; others have yet to be found.
func byShard(parts []batchPart) []batchPart {
	var all []batchPart
	for i := range parts {
		part := &parts[i]
		if part.err != nil {
			all = append(all, *part)
			continue
		}
		byShard := make([][]*batchClaim, max(1, part.lane.meta.Shards))
		for _, c := range part.claims {
			shard := part.lane.meta.ShardOf(c.UserID, c.Subjects)
			byShard[shard-1] = append(byShard[shard-1], c)
		}
		for j, claims := range byShard {
			if len(claims) > 0 {
				one := batchPart{campaignID: part.campaignID, claims: claims, lane: part.lane, shard: part.lane}
				if part.lane.meta.IsSharded() {
					one.shardID = models.ShardID(part.campaignID, j+1)
					one.shard = nil
				}
				all = append(all, one)
			}
		}
	}
	return all
}

type sentClaim struct {
	campaign, shard *lane
	ticket          *coalesce.Ticket
}

func sentBy(parts []batchPart) (sent []sentClaim) {
	for i := range parts {
		for _, t := range parts[i].tickets {
			sent = append(sent, sentClaim{parts[i].lane, parts[i].shard, t})
		}
	}
	return sent
}

// awaitRows waits until MySQL has the accepted claims, in mode mysql. Only
// an answered claim advances the position that this process has seen: an
// unanswered one that Redis loses isn't missing.
func (s *Routes) awaitRows(ctx context.Context, sent []sentClaim) {
	if s.cfg.Rows == nil {
		return
	}
	var accepted []rows.Claim
	var shards []*lane
	for _, c := range sent {
		if c.ticket.Err == nil && c.ticket.Reply.Outcome.Took() {
			accepted = append(accepted, rows.Claim{Ticket: c.ticket, Partition: c.shard.meta.Partition})
			shards = append(shards, c.shard)
		}
	}
	s.rows.Await(ctx, accepted, func(i int) {
		if reply := &accepted[i].Ticket.Reply; reply.Outcome == models.OutcomeClaimed {
			shards[i].latest.advance(lua.Position{Epoch: reply.Epoch, Seq: reply.Claim.Seq})
		}
	})
}

func (s *Routes) waitForRefills(ctx context.Context, sent []sentClaim) {
	var dry []sentClaim
	for _, one := range sent {
		if isDry(one.ticket) {
			dry = append(dry, one)
		}
	}
	s.hold(ctx, dry)
}

// hold refills shards and sends their claims again, until they have an
// answer or maxRefillWait is over.
func (s *Routes) hold(ctx context.Context, dry []sentClaim) {
	if len(dry) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxRefillWait)
	defer cancel()
	defer func(started time.Time, claims int) {
		for range claims {
			s.metrics.held.Observe(s.cfg.Clock().Sub(started).Seconds())
		}
	}(s.cfg.Clock(), len(dry))
	for len(dry) > 0 {
		dry = s.sendAgain(ctx, s.refillAll(ctx, dry))
	}
}

const refillsMax = 8

// refillAll refills the claims' shards and returns the claims to send
// again. The others have their answer.
func (s *Routes) refillAll(ctx context.Context, dry []sentClaim) (again []sentClaim) {
	found := make([]error, len(dry))
	var refills errgroup.Group
	refills.SetLimit(refillsMax)
	for i := range dry {
		refills.Go(func() error {
			found[i] = s.refill(ctx, &dry[i])
			return nil
		})
	}
	_ = refills.Wait() // each has its own error
	var few *tooFewError
	for i := range dry {
		answer := &dry[i].ticket.Answer
		switch {
		case errors.As(found[i], &few):
			answer.Reply.Outcome = models.OutcomeSoldOut
			answer.Reply.Left = few.left
		case found[i] != nil:
			answer.Err = found[i]
		default:
			again = append(again, dry[i])
		}
	}
	return again
}

// sendAgain sends claims again under the same ids, and returns those
// whose shards are still dry.
func (s *Routes) sendAgain(ctx context.Context, claims []sentClaim) (dry []sentClaim) {
	if len(claims) == 0 {
		return nil
	}
	w := coalesce.NewCaller(ctx, len(claims))
	for i := range claims {
		w.Add(claims[i].ticket.Request)
	}
	for i := range claims {
		claims[i].shard.coalescer.Submit([]*coalesce.Ticket{&w.Tickets[i]})
	}
	w.Wait()
	for i := range claims {
		claims[i].ticket.Answer = w.Tickets[i].Answer
		if isDry(claims[i].ticket) {
			dry = append(dry, claims[i])
		}
	}
	return dry
}

// tooFew means the campaign was proven to have fewer units than a
// claim needs.
type tooFewError struct{ left int64 }

func (e *tooFewError) Error() string {
	return fmt.Sprintf("claiming: sold out, %d units are left", e.left)
}

// refill moves units to a claim's shard, once for all concurrent
// claims that need as many there. It returns nil if there were some,
// else tooFew or errDry.
func (s *Routes) refill(ctx context.Context, c *sentClaim) error {
	quantity := c.ticket.Request.Quantity
	for ctx.Err() == nil {
		if k := c.campaign.soldOut.covers(quantity, s.cfg.Clock().Add(proveAfter)); k != nil {
			return &tooFewError{k.from - 1}
		}
		flight := s.refills.DoChan(fmt.Sprintf("%s %d", c.shard.meta.ID, quantity), func() (any, error) {
			round := c.campaign.soldOut.round.Load()
			started := s.cfg.Clock()
			refill, err := c.shard.refill(models.Need{Units: quantity})
			if err == nil && refill.SoldOutFrom > 0 {
				c.campaign.soldOut.learn(round, started, refill.SoldOutFrom)
			}
			return refill, err
		})
		select {
		case got := <-flight:
			refill, _ := got.Val.(models.Refill)
			switch {
			case got.Err == nil && refill.SoldOutFrom > 0 && quantity >= refill.SoldOutFrom:
				return &tooFewError{refill.SoldOutFrom - 1}
			case got.Err == nil:
				return nil
			}
			c.campaign.logSome.Do(func() {
				s.cfg.Logger.WarnContext(ctx,
					"a shard of a campaign is out of units and was not refilled, its claims are refused; are redis and mysql up?",
					slog.String("campaign_id", c.shard.meta.ID), slog.Any("error", got.Err))
			})
			_ = sleep.For(ctx, holdPause) // ctx is checked above
		case <-ctx.Done():
		}
	}
	return errDry
}

func (l *lane) refill(need models.Need) (models.Refill, error) {
	if l.cfg.Mover == nil {
		return models.Refill{}, errDry
	}
	ctx, cancel := context.WithTimeout(context.Background(), refillTimeout)
	defer cancel()
	var campaignID string
	campaignID, need.Shard = models.SplitShardID(l.meta.ID)
	need.Shards = l.meta.Shards
	need.Within = maxRefillWait
	return l.cfg.Mover.Refill(ctx, campaignID, need)
}

// pace is how many units a shard sells lately, through all processes.
// The shard's seq reveals the claims of the others.
type pace struct {
	mu            sync.Mutex
	since         time.Time
	seq           int64 // the shard's, at since
	claims, units int64 // through this process since then
	perSpan       atomic.Int64
	isAsking      atomic.Bool // a refill ahead is under way
}

func (p *pace) perPaceSpan() int64 { return p.perSpan.Load() }

// add records the claims of a call, their units, and the shard's seq
// after it.
func (p *pace) add(now time.Time, seq, claims, units int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims += claims
	p.units += units
	took := now.Sub(p.since)
	if took < models.PaceSpan {
		return
	}
	if took < time.Second {
		all := float64(p.units)
		if p.claims > 0 {
			all *= float64(max(p.claims, seq-p.seq)) / float64(p.claims)
		}
		p.perSpan.Store(int64(all * float64(models.PaceSpan) / float64(took)))
	}
	p.since = now
	p.seq = seq
	p.claims = 0
	p.units = 0
}

// refillAhead refills a shard that will soon be dry, before a claim
// has to wait.
func (l *lane) refillAhead(now time.Time, replies []lua.ClaimReply, view lua.CampaignView) {
	claims := int64(0)
	units := int64(0)
	for i := range replies {
		if replies[i].Outcome == models.OutcomeClaimed {
			claims++
			units += replies[i].Claim.Quantity
		}
	}
	if !l.mayBeDry() {
		return
	}
	l.pace.add(now, view.Seq, claims, units)
	need, lacks := models.NeedAhead(view.Remaining, units, l.pace.perPaceSpan())
	if units == 0 || !lacks || !l.pace.isAsking.CompareAndSwap(false, true) {
		return
	}
	started := l.cfg.Workers.Go(func() {
		defer l.pace.isAsking.Store(false)
		_, _ = l.refill(need) // a claim that waits later retries it and logs the error
	})
	if !started {
		l.pace.isAsking.Store(false)
	}
}
