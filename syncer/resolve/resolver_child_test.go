package resolve_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/resolve"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// resolverPlan is what a helper does: it releases and redeems claims of a campaign at random, expires and relays beside that,
// and kills itself.
type resolverPlan struct {
	DSN, Redis, CampaignID string

	NowMs   int64  // of the clock of Redis
	Seed    uint64 // of who resolves what
	Step    string // at which step it kills itself; stepNever is not at all
	Visit   int64  // the how manieth time it comes there
	DelayUs int64  // so long after
	Way     string // how Redis hears of a release
}

// Steps of no part of the program.
const (
	stepStart = "start" // of the helper's work
	stepNever = "never"
)

// Ways of a release to Redis.
const (
	wayOutbox = "outbox" // ours
	wayDirect = "direct" // control: plain sums in Redis after the commit
	wayTwice  = "twice"  // control: these, with a mark in MySQL of what is to be done still
)

// What one helper does.
const (
	resolverWorkers = 4
	resolverDeeds   = 5  // of each worker
	resolverPool    = 60 // newest claims that it picks from
)

// ender ends claims; a *syncer.Resolver is one.
type ender interface {
	Release(ctx context.Context, claimID, reason string) (models.Resolution, error)
	Redeem(ctx context.Context, claimID, orderID string) (models.Resolution, error)
}

func runResolverChild(ctx context.Context, p resolverPlan, db *gorm.DB, rdb redis.UniversalClient) error {
	if p.Way != wayOutbox {
		d := &directEnder{db: db, rdb: rdb, campaignID: p.CampaignID, marked: p.Way == wayTwice, step: p.stepper()}
		if err := d.recover(ctx); err != nil {
			return err
		}
		return p.deeds(ctx, db, d)
	}
	scripts, err := lua.New(rdb, lua.Options{ServerClock: func() int64 { return p.NowMs }})
	if err != nil {
		return err
	}
	return p.run(ctx, db, scripts)
}

// stepper is the function to be called between steps, by any goroutine.
func (p *resolverPlan) stepper() func(step string) {
	var visits atomic.Int64
	return func(step string) {
		if step != p.Step || visits.Add(1) != p.Visit {
			return
		}
		if p.DelayUs == 0 {
			syncertest.DieHere()
		}
		time.AfterFunc(time.Duration(p.DelayUs)*time.Microsecond, syncertest.DieHere)
	}
}

// run resolves, expires and relays at once, and in the end reports what is left.
func (p *resolverPlan) run(ctx context.Context, db *gorm.DB, scripts *lua.Scripts) error {
	step := p.stepper()
	relay := resolve.Eager(resolve.NewRelay(db, scripts, nil))
	expirer := resolve.ExpirerWithStep(resolve.ExpirerWithBatch(resolve.NewExpirer(relay, nil, nil), 3), step)
	resolver := resolve.ResolverWithStep(resolve.NewResolver(db, relay, syncertest.Quiet()), step)
	step(stepStart)
	var g errgroup.Group
	g.Go(func() error { return p.deeds(ctx, db, resolver) })
	g.Go(func() error { _, err := expirer.Expire(ctx); return err })
	g.Go(func() error { _, err := relay.Relay(ctx); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	_, err := relay.Relay(ctx)
	return err
}

// deeds releases and redeems what earlier helpers, and the others of this one, may have ended already.
func (p *resolverPlan) deeds(ctx context.Context, db *gorm.DB, how ender) error {
	var ids []string
	err := db.WithContext(ctx).Raw("SELECT id FROM claims WHERE campaign_id = ? ORDER BY seq DESC LIMIT ?", p.CampaignID, resolverPool).Scan(&ids).Error
	if err != nil {
		return err
	}
	var g errgroup.Group
	for worker := range resolverWorkers {
		random := rand.New(rand.NewPCG(p.Seed, uint64(worker)))
		g.Go(func() (err error) {
			for range resolverDeeds {
				id := ids[random.IntN(len(ids))]
				if random.IntN(8) == 0 {
					_, err = how.Redeem(ctx, id, fmt.Sprint("order-", worker))
				} else {
					_, err = how.Release(ctx, id, "")
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// directEnder is the control: it gives quota back by plain sums after the commit. Claims are of one unit.
type directEnder struct {
	db         *gorm.DB
	rdb        redis.UniversalClient
	campaignID string
	marked     bool // a release that Redis was not told of is marked in MySQL, and done again
	step       func(step string)
}

// untoldMark is in release_reason of what Redis is to be notified of.
const untoldMark = "untold"

func (d *directEnder) Redeem(ctx context.Context, id, order string) (res models.Resolution, err error) {
	return res, d.db.WithContext(ctx).Exec("UPDATE claims SET status = ?, order_id = ? WHERE id = ? AND status = ?",
		models.ClaimRedeemed, order, id, models.ClaimClaimed).Error
}

func (d *directEnder) Release(ctx context.Context, id, _ string) (res models.Resolution, err error) {
	won := false
	err = d.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		moved := tx.Exec("UPDATE claims SET status = ?, release_reason = ? WHERE id = ? AND status = ?", models.ClaimReleased, untoldMark, id, models.ClaimClaimed)
		if won = moved.RowsAffected == 1; !won {
			return moved.Error
		}
		return tx.Exec("UPDATE lots SET claimed = claimed - 1, released_claims = released_claims + 1"+
			" WHERE id = ?", d.campaignID).Error
	})
	if err != nil || !won {
		return res, err
	}
	d.step("committed")
	return res, d.giveBack(ctx, id)
}

func (d *directEnder) giveBack(ctx context.Context, id string) error {
	state := lua.KeysOf(d.campaignID, 0).State
	_, err := d.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HIncrBy(ctx, state, "taken", -1)
		p.HIncrBy(ctx, state, "released", 1)
		return nil
	})
	if err != nil {
		return err
	}
	d.step("told")
	return d.db.WithContext(ctx).Exec("UPDATE claims SET release_reason = '' WHERE id = ?", id).Error
}

// recover does again what is marked.
func (d *directEnder) recover(ctx context.Context) error {
	var ids []string
	err := d.db.WithContext(ctx).Raw("SELECT id FROM claims WHERE campaign_id = ? AND release_reason = ?", d.campaignID, untoldMark).Scan(&ids).Error
	if err != nil || !d.marked {
		return err
	}
	for _, id := range ids {
		if err := d.giveBack(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
