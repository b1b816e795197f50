package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"dibs/lua"
	"dibs/models"
)

// fixture is a campaign in Redis with claims, some with the client's keys.
type fixture struct {
	s       *lua.Scripts
	c       *models.Campaign
	meta    lua.Meta
	claimed []lua.ClaimReply
}

// verbs calls each script on the fixture, as its users do. A
// test requires a line for each script.
var verbs = map[string]func(ctx context.Context, f *fixture) error{
	// a replay, a claim with a key, one without, and one beyond the
	// user's limit
	"claim": func(ctx context.Context, f *fixture) error {
		_, _, err := f.s.Claim(ctx, f.meta, []lua.ClaimRequest{
			ask("user-1", 1, "key-1"), ask("user-9", 2, uuid.NewString()), ask("user-10", 1, ""), ask("user-2", 5, ""),
		})
		return err
	},
	"load": func(ctx context.Context, f *fixture) error {
		other := *f.c
		other.ID = "autumn"
		_, err := f.s.Load(ctx, &other)
		return err
	},
	"adjust": func(ctx context.Context, f *fixture) error {
		f.c.Version = 2
		f.c.Total = 200
		_, err := f.s.Adjust(ctx, f.c, nil)
		return err
	},
	"state": func(ctx context.Context, f *fixture) error { _, err := f.s.State(ctx, f.c.ID); return err },
	"fence": func(ctx context.Context, f *fixture) error { return f.fence(ctx) },
	"resume": func(ctx context.Context, f *fixture) error {
		if err := f.fence(ctx); err != nil {
			return err
		}
		f.c.Epoch = 2
		return f.s.Resume(ctx, &lua.Load{Campaign: f.c, Token: token, Seq: 7, Sold: 9, Rows: 3, RowUnits: 5})
	},
	"generation": func(ctx context.Context, f *fixture) error {
		_, _, err := f.s.NextGeneration(ctx, f.meta.Partition, 1+f.s.Signals(ctx)[f.meta.Partition].Generation)
		return err
	},
	"pause": func(ctx context.Context, f *fixture) error {
		return f.s.Pause(ctx, []string{f.c.ID}, &lua.Pause{ID: uuid.NewString()})[0]
	},
	"evict": func(ctx context.Context, f *fixture) error {
		_, errs := f.s.Evict(ctx, []models.Campaign{*f.c}, 0)
		return errs[0]
	},
	"push": func(ctx context.Context, f *fixture) error {
		rain := *f.c
		rain.ID = "rain-" + uuid.NewString()[:8]
		rain.Kind = models.KindPacket
		rain.Currency = "EUR"
		rain.Total = 2
		if _, err := f.s.Load(ctx, &rain); err != nil {
			return err
		}
		_, err := f.s.Push(ctx, rain.ID, &lua.Push{
			Epoch: rain.Epoch, Upto: 2, Units: 2, Packets: []models.Packet{{ID: "small", Amount: 88}, {ID: "large", Amount: 888}},
		})
		return err
	},
	"debit": func(ctx context.Context, f *fixture) error {
		lot, err := f.lot(ctx, 2)
		if err != nil {
			return err
		}
		_, err = f.s.Debit(ctx, &lua.Debit{Move: uuid.NewString(), Shard: lot.ID, Epoch: lot.Epoch, To: 1, Units: 2})
		return err
	},
	"credit": func(ctx context.Context, f *fixture) error {
		lot, err := f.lot(ctx, 1)
		if err != nil {
			return err
		}
		_, err = f.s.Credit(ctx, &lua.Credit{Move: uuid.NewString(), Shard: lot.ID, Epoch: lot.Epoch, From: 2, Units: 2})
		return err
	},
	"release": func(ctx context.Context, f *fixture) error {
		_, err := f.s.Release(ctx, f.c, []lua.Release{released(&f.claimed[1].Claim)})
		return err
	},
}

func (f *fixture) lot(ctx context.Context, number int) (*models.Campaign, error) {
	lot := *f.c
	lot.ID = models.ShardID(f.c.ID, number)
	lot.Shards = 2
	_, err := f.s.Load(ctx, &lot)
	return &lot, err
}

// perform makes a new fixture and calls the script; the tap
// intercepts the call.
func perform(ctx context.Context, rdb redis.UniversalClient, heard *tap, name string) error {
	verb, known := verbs[name]
	if !known {
		return fmt.Errorf("%s has no call: give it one in proof/luadebug/fixture.go", name)
	}
	heard.open = false
	heard.heard = false
	f, err := newFixture(ctx, rdb)
	if err != nil {
		return err
	}
	heard.open = true
	if err := verb(ctx, f); !heard.heard {
		return fmt.Errorf("%s was not called: %w", name, err)
	}
	return nil
}

func newFixture(ctx context.Context, rdb redis.UniversalClient) (*fixture, error) {
	s, err := lua.New(rdb, lua.Options{})
	if err != nil {
		return nil, err
	}
	c := &models.Campaign{
		ID: "spring-" + uuid.NewString()[:8], Kind: models.KindCoupon, Status: models.StatusOpen, Total: 100, PerUser: 3, PerUserPerDay: 2,
		TimeZone: "Europe/Berlin", LowStockAt: 92, Epoch: 1, Version: 1,
	}
	f := &fixture{s: s, c: c}
	f.meta, err = s.MetaOf(c)
	if err != nil {
		return nil, err
	}
	if err := s.Preload(ctx); err != nil {
		return nil, err
	}
	if _, err := s.Load(ctx, c); err != nil {
		return nil, err
	}
	f.claimed, _, err = s.Claim(ctx, f.meta, []lua.ClaimRequest{ask("user-1", 1, "key-1"), ask("user-2", 2, ""), ask("user-3", 2, "key-3")})
	return f, err
}

const token = "loader"

func (f *fixture) fence(ctx context.Context) error {
	_, errs := f.s.Fence(ctx, token, lua.FenceAny, []string{f.c.ID})
	return errs[0]
}

func ask(user string, quantity int64, key string) lua.ClaimRequest {
	return lua.ClaimRequest{ID: uuid.New(), UserID: user, Quantity: quantity, Key: key}
}

// released is the release of a claim made without a key.
func released(c *models.Claim) lua.Release {
	return lua.Release{
		Claim: lua.ClaimRecord{
			ID: []byte(c.ID), UserID: []byte(c.UserID), Seq: c.Seq, Quantity: c.Quantity, At: c.ClaimedAt.Time,
		},
		EventID: uuid.NewString(), Event: []byte(`{"v":1,"type":"claim.released","id":"` + c.ID + `"}`),
	}
}
