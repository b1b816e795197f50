package resolve_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"dibs/internal/syncertest"
	"dibs/lua"
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
}

// Steps of no part of the program.
const (
	stepStart = "start" // of the helper's work
	stepNever = "never"
)

// What one helper does.
const (
	resolverWorkers = 4
	resolverDeeds   = 5  // of each worker
	resolverPool    = 60 // newest claims that it picks from
)

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

// runResolverChild resolves, expires and relays at once.
func runResolverChild(ctx context.Context, p resolverPlan, db *gorm.DB, rdb redis.UniversalClient) error {
	scripts, err := lua.New(rdb, lua.Options{ServerClock: func() int64 { return p.NowMs }})
	if err != nil {
		return err
	}
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
	_, err = relay.Relay(ctx)
	return err
}

// deeds releases and redeems what earlier helpers, and the others of this one, may have ended already.
func (p *resolverPlan) deeds(ctx context.Context, db *gorm.DB, how *resolve.Resolver) error {
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
