package shards_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"dibs/internal/sleep"
	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/residency"
	"dibs/syncer/shards"
)

const (
	shardCount = 4
	perUser    = 10
)

// sellerPlan is what a seller does: it claims for users at random, mostly of one shard, and moves units as an API process does.
type sellerPlan struct {
	DSN, Redis, CampaignID string

	Seed    uint64
	Home    int    // the shard of most users
	Users   int    // how many there are to choose from
	Step    string // of a move, at which it strikes; "" is not at all
	Visit   int64  // the how manieth time it comes there
	Packets bool   // the campaign is one of packets
}

var anyStep = []string{"planned", "debited", "credited"}

// seller is an API process as far as the units of one campaign go: it claims, and moves units when a shard is dry.
type seller struct {
	sellerPlan

	random  *rand.Rand
	scripts *lua.Scripts
	mover   *shards.Mover
	loader  *residency.Hydrator
	metas   map[int]lua.Meta
	told    []told
	dryAt   int64 // the smallest quantity that was sold out
}

// told is a claim that was answered.
type told struct {
	id       string
	quantity int64
	packet   string
}

func scriptsOf(rdb redis.UniversalClient) (*lua.Scripts, error) {
	return lua.New(rdb, lua.Options{Partitions: shardCount, Durability: lua.Durability{Fsync: true}})
}

// newSeller makes one that calls strike at its step.
func newSeller(p sellerPlan, db *gorm.DB, rdb redis.UniversalClient, strike func()) (*seller, error) {
	scripts, err := scriptsOf(rdb)
	if err != nil {
		return nil, err
	}
	loader := residency.NewHydrator(db, scripts, syncertest.Quiet(), nil)
	s := &seller{
		sellerPlan: p, random: rand.New(rand.NewPCG(p.Seed, 1)), scripts: scripts, loader: loader,
		mover: shards.New(db, scripts, loader, syncertest.Quiet(), nil), metas: map[int]lua.Meta{},
	}
	var visits atomic.Int64
	s.mover.Observe(func(step string) {
		if step == p.Step && visits.Add(1) == p.Visit {
			strike()
		}
	})
	return s, nil
}

// sell claims until not one unit is left, or ctx ends. What a server that is away can't answer is asked again.
func (s *seller) sell(ctx context.Context) (soldOut bool) {
	for ctx.Err() == nil {
		quantity := 1 + s.random.Int64N(perUser)
		if s.dryAt > 0 || s.Packets {
			quantity = 1
		}
		shard := s.Home
		if s.random.IntN(4) == 0 {
			shard = 1 + s.random.IntN(shardCount)
		}
		switch outcome, err := s.claim(ctx, shard, quantity); {
		case err != nil:
			_ = sleep.For(ctx, 5*time.Millisecond) // ctx is looked at above
		case outcome == models.OutcomeSoldOut && quantity == 1:
			return true
		case outcome == models.OutcomeSoldOut:
			s.dryAt = quantity
		}
	}
	return false
}

// userOf draws a user of a shard. Every other user comes once only, so that units find takers.
func (s *seller) userOf(shard int) string {
	for {
		user := fmt.Sprintf("u-%d", s.random.IntN(s.Users))
		if s.random.IntN(2) == 0 {
			user = fmt.Sprintf("once-%d", s.random.Uint64())
		}
		if models.ShardOfUser(user, shardCount) == shard {
			return user
		}
	}
}

var errAgain = errors.New("to be asked again")

func (s *seller) claim(ctx context.Context, shard int, quantity int64) (models.Outcome, error) {
	meta, known := s.metas[shard]
	if !known {
		var err error
		if meta, err = s.loader.Hydrate(ctx, models.ShardID(s.CampaignID, shard)); err != nil {
			return "", err
		}
		s.metas[shard] = meta
	}
	req := lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: s.userOf(shard), Quantity: quantity}
	for {
		replies, _, err := s.scripts.ClaimAfter(ctx, meta, lua.Position{}, []lua.ClaimRequest{req})
		if err != nil {
			return "", err
		}
		switch outcome := replies[0].Outcome; outcome {
		case models.OutcomeClaimed:
			s.told = append(s.told, told{replies[0].Claim.ID, quantity, replies[0].Claim.PacketID})
			return outcome, nil
		case models.OutcomeDry:
		case models.OutcomeUserLimit:
			return outcome, nil
		default:
			delete(s.metas, shard) // it is loaded again
			return outcome, errAgain
		}
		refill, err := s.mover.Refill(ctx, s.CampaignID, models.Need{Shard: shard, Units: quantity, Pace: 5})
		if err != nil || refill.SoldOutFrom > 0 {
			return models.OutcomeSoldOut, err
		}
	}
}

// runSeller is the body of a helper process, which strikes itself.
func runSeller(ctx context.Context, p sellerPlan, db *gorm.DB, rdb redis.UniversalClient) error {
	s, err := newSeller(p, db, rdb, syncertest.DieHere)
	if err == nil {
		s.sell(ctx)
	}
	return err
}
