package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dibs/models"
)

// cacheFor is how long an API process may still answer sold_out:
// its cache of 50 ms, plus a slow call.
const cacheFor = 150 * time.Millisecond

// heal waits until every process answers. Claims need no intervention; the
// operator recreates campaigns that a restored MySQL lost.
func (rd *round) heal(ctx context.Context) error {
	// a full disk may end it after there is space again
	if err := rd.w.Try(rd.w.startSQL); err != nil {
		return err
	}
	for _, p := range rd.w.parts {
		if err := p.awaitUp(ctx, healWithin); err != nil {
			return err
		}
	}
	if !rd.undone() {
		return nil
	}
	o := &operator{caller: newCaller(), w: rd.w}
	defer o.close()
	for _, c := range rd.campaigns {
		if err := o.addAgain(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// repairTries is an operator's least number of repairs: one
// repair may take longer than healWithin.
const repairTries = 3

// giveUp does what an operator does after Redis lost data: lost
// units are for sale again, and all data agree.
func (rd *round) giveUp(ctx context.Context) error {
	rd.mu.Lock()
	lost := len(rd.losses) > 0
	rd.mu.Unlock()
	if !lost {
		return nil
	}
	flags := []string{"reconcile", "--repair", "--give-up-claims"}
	deadline := time.Now().Add(healWithin)
	for try := 1; ; try++ {
		out, err := rd.w.dibs(flags...)
		if err == nil {
			return nil
		}
		if try >= repairTries && time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%w: dibs %s does not repair the books within %s and %d tries: %w: %s", errBroken, strings.Join(flags, " "),
				healWithin, try, err, out)
		}
		wait(ctx, 200*time.Millisecond)
	}
}

// settle sells the rest and ends what must end.
func (rd *round) settle(ctx context.Context) error {
	all := rd.campaigns
	failed := make([]error, len(all))
	started := time.Now()
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			failed[i] = rd.settleOne(ctx, c, chanceOfLast+uint64(i))
			if took := time.Since(started); took > soldOutLate {
				rd.w.opt.Progress(fmt.Sprintf("round %d: %s was sold out after %.1fs", rd.n, c.id, took.Seconds()))
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// soldOutLate is when a slow sell-out is reported.
const soldOutLate = 4 * time.Second

func (rd *round) settleOne(ctx context.Context, c *campaign, chance uint64) error {
	o := &operator{caller: newCaller(), w: rd.w, r: rd.rand(chance)}
	defer o.close()
	c.closed = c.has(withFinance) || c.has(withArchive)
	switch {
	case c.has(withArchive):
		c.closing.Store(true)
		return o.archiveAll(ctx, c, rd.lied)
	case c.closed: // the rest is returned
		return o.closeCampaign(ctx, c)
	}
	if err := errors.Join(o.reopen(ctx, c), o.unlimit(ctx, c)); err != nil || strings.HasSuffix(c.id, endless) {
		return err
	}
	n := lastClients
	if c.shards > 1 {
		n = 1 // shards would move units back and forth for several large buyers
	}
	failed := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		last := rd.newClient(fmt.Sprintf("last-%d", i), chance+uint64(i))
		wg.Go(func() {
			defer last.close()
			failed[i] = last.sellOut(ctx, o, c)
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// lastClients is the number of clients that sell out a campaign.
const lastClients = 4

// soldOutWithin limits a sell-out's time per shard: the last
// units are gathered.
const soldOutWithin = time.Minute

// sellOut sells the last units to new users: with enough demand
// exactly total must be sold. Packets go to their shard's users.
func (c *client) sellOut(ctx context.Context, o *operator, of *campaign) error {
	if !of.packets || of.shards == 1 {
		return c.sell(ctx, o, of)
	}
	for c.shard = 1; c.shard <= of.shards; c.shard++ {
		if err := c.sell(ctx, o, of); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) sell(ctx context.Context, o *operator, of *campaign) error {
	most := int64(64)
	if of.shards > 1 {
		most = 4
	}
	if of.packets {
		most = 1
	}
	deadline := time.Now().Add(soldOutWithin * time.Duration(of.shards))
	quantity := most
	for refused := 0; refused < 2; {
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %s is not sold out in time", errBroken, of.id)
		}
		if refused == 1 {
			if n, err := c.w.undecided(of); err != nil || n > 0 { // units may still return
				refused = 0
				quantity = most
				wait(ctx, 50*time.Millisecond)
				continue
			}
			wait(ctx, cacheFor) // an API process may have cached the state before the last return
		}
		one, err := c.buy(ctx, of, quantity, deadline)
		switch {
		case err != nil:
			return err
		case one.last().claim != nil:
		case shut(one.last().code): // an earlier request of unknown outcome was done late
			if err := o.reopen(ctx, of); err != nil {
				return err
			}
		case one.last().code == "user_limit" && !of.packets:
			if err := o.unlimit(ctx, of); err != nil {
				return err
			}
		case one.last().code == "not_released":
			wait(ctx, 50*time.Millisecond)
		case quantity > 1:
			quantity /= 2
		default:
			refused++
		}
	}
	return nil
}

// undecided counts a campaign's claims and decisions that may return units.
func (w *world) undecided(of *campaign) (n int64, err error) {
	query := "SELECT COUNT(*) FROM outbox WHERE SUBSTRING_INDEX(campaign_id, '#', 1) = ?"
	if of.hold > 0 {
		query = "SELECT (" + query + ") + (SELECT COUNT(*) FROM claims WHERE campaign_id = '" + of.id + "' AND status = 'claimed'" +
			// a later one has a time of a clock that was ahead, and stays
			" AND claimed_at < UTC_TIMESTAMP(3) + INTERVAL 1 MINUTE)"
	}
	return n, w.db.QueryRowContext(w.ctx, query, of.id).Scan(&n)
}

// newUser returns a user without claims.
func (c *client) newUser(of *campaign) string {
	for i := 0; ; i++ {
		user := fmt.Sprintf("%s-%d", c.name, c.made)
		if i > 0 {
			user += fmt.Sprintf("-%d", i)
		}
		if c.shard == 0 || models.ShardOfUser(user, of.shards) == c.shard {
			return user
		}
	}
}

// buy claims until the outcome is certain, and redeems what would expire.
func (c *client) buy(ctx context.Context, of *campaign, quantity int64, deadline time.Time) (*request, error) {
	one := c.fresh(of)
	one.quantity = quantity
	one.user = c.newUser(of)
	one.key = fmt.Sprintf("%s %s %d", of.id, c.name, c.made)
	for c.try(one); !certain(one.last().code); c.try(one) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %s takes no claims in time: %s", errBroken, of.id, one.last().code)
		}
		wait(ctx, 20*time.Millisecond)
	}
	for one.last().claim != nil && of.hold > 0 {
		e := c.end(one, c.base(), one.last().claim.ID, models.ClaimRedeemed)
		if e.code == "" || e.code == "already_released" { // it may have expired by now
			break
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, fmt.Errorf("%w: claim %s can't be redeemed: %+v", errBroken, one.last().claim.ID, one.ends)
		}
		wait(ctx, 20*time.Millisecond)
	}
	return one, nil
}

// drain waits until MySQL and the finance service have everything.
func (rd *round) drain(ctx context.Context, o *operator) error {
	rd.w.hook.calm.Store(true)
	defer rd.w.hook.calm.Store(false)
	for deadline := time.Now().Add(healWithin); ; wait(ctx, 50*time.Millisecond) {
		err := rd.drained(ctx, o)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%w: not drained within %s: %w", errBroken, healWithin, err)
		}
	}
}

// everyClaim selects MySQL's claims, including archived ones.
const everyClaim = "(SELECT id, campaign_id, amount FROM claims UNION ALL SELECT id, campaign_id, amount FROM claims_archive)"

// errUndrained means that something is in transit.
var errUndrained = errors.New("torture: on its way")

func (rd *round) drained(ctx context.Context, o *operator) error {
	for _, c := range rd.campaigns {
		var untold, uncredited, unclosed, unreturned int64
		err := rd.w.db.QueryRowContext(ctx, `SELECT
			(SELECT COUNT(*) FROM outbox WHERE SUBSTRING_INDEX(campaign_id, '#', 1) = ?),
			(SELECT COUNT(*) FROM `+everyClaim+` c LEFT JOIN account_entries e ON e.claim_id = c.id
			 WHERE c.campaign_id = ? AND c.amount IS NOT NULL AND e.claim_id IS NULL),
			(SELECT COUNT(*) FROM campaigns WHERE id = ? AND status = 'closed' AND closed_told_at IS NULL),
			EXISTS (SELECT 1 FROM packets WHERE campaign_id = ? AND returned_at IS NOT NULL) AND
			 NOT EXISTS (SELECT 1 FROM account_entries WHERE campaign_id = ? AND user_id = ?)`, c.id, c.id, c.id, c.id, c.id, sender(c)).
			Scan(&untold, &uncredited, &unclosed, &unreturned)
		if err != nil {
			return wrap(err)
		}
		if len(rd.losses) > 0 {
			// finance lost the event, MySQL had it: docs/finance.md says how
			// to credit these
			uncredited = 0
		}
		if untold+uncredited+unclosed+unreturned > 0 {
			return fmt.Errorf("%w: %s: %d decisions for Redis, %d credits, closed but not published: %d, returned but not credited: %d",
				errUndrained, c.id, untold, uncredited, unclosed, unreturned)
		}
		if missing, err := rd.undelivered(ctx, c); err != nil || missing > 0 && rd.owesWebhooks() {
			return errors.Join(err, fmt.Errorf("%w: %s: %d claims for the receiver of webhooks", errUndrained, c.id, missing))
		}
		stock, err := o.stock(ctx, c)
		if err != nil {
			return err
		}
		if stock.Backlog > 0 && stock.Backlog > stock.Parked {
			return fmt.Errorf("%w: %s: %+v", errUndrained, c.id, stock)
		}
	}
	return nil
}

func (o *operator) stock(ctx context.Context, c *campaign) (stock models.Stock, err error) {
	r := o.send(ctx, http.MethodGet, o.base()+"/v1/campaigns/"+c.id+"/stock", "", nil)
	if r.code != "" {
		return stock, fmt.Errorf("%w: stock of %s: %s", errUndrained, c.id, r.code)
	}
	return stock, wrap(json.Unmarshal(r.body, &stock))
}

// reconciled requires exit code 0 of `dibs reconcile` for the round's
// campaigns. It retries for a campaign that was closed early: no claim
// notices a deleted key there, but the leader does at its next comparison.
// The same holds for a lower total to which a server replied too late.
func (rd *round) reconciled() {
	var all errgroup.Group
	all.SetLimit(4)
	for _, c := range rd.campaigns {
		all.Go(func() error {
			out, err := rd.w.dibs("reconcile", "--campaign", c.id)
			for deadline := time.Now().Add(healWithin); err != nil && (c.closing.Load() || c.has(withChanges)) && time.Now().Before(deadline); {
				wait(context.Background(), time.Second)
				out, err = rd.w.dibs("reconcile", "--campaign", c.id)
			}
			if err != nil {
				rd.brokenf("dibs reconcile --campaign %s: %v: %s", c.id, err, out)
			}
			return nil
		})
	}
	_ = all.Wait()
}
