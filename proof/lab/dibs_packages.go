package lab

import (
	"context"
	"errors"
	"fmt"

	"dibs/consumer"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/syncer/campaigns"
	"dibs/syncer/lots"
	"dibs/syncer/writer"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

// dibsPackages is Dibs without HTTP: claimers share calls of the claim script, which takes the unit and reports the stream in
// one step; a consumer and the writer book what the stream says.
type dibsPackages struct {
	Env
	dibsParts

	meta  lua.Meta
	batch *batcher
}

func dibsPackagesStrategy() Entry {
	return Entry{
		Name: "dibs-packages", Title: "Dibs, through its packages", Flaw: "the books follow, some milliseconds behind",
		Sound: true, DieAt: StepWritten, New: newDibsPackages, Serve: serveDibsPackages,
	}
}

func newDibsPackages(env Env) (Strategy, error) {
	parts, err := newDibsParts(env.RedisURL)
	if err != nil {
		return nil, err
	}
	definition := env.Campaign.definition()
	meta, err := parts.scripts.MetaOf(&definition)
	if err != nil {
		_ = parts.rdb.Close()
		return nil, fmt.Errorf("lab: %w", err)
	}
	s := &dibsPackages{Env: env, dibsParts: parts, meta: meta}
	s.batch = newBatcher(func(ctx context.Context, reqs []lua.ClaimRequest) ([]lua.ClaimReply, error) {
		replies, _, err := s.scripts.Claim(ctx, s.meta, reqs)
		return replies, err
	})
	return s, nil
}

// Prepare creates the campaign in MySQL and brings it into Redis.
func (s *dibsPackages) Prepare(ctx context.Context) error {
	return s.withStore(ctx, func(db *gorm.DB) error {
		if err := s.scripts.Preload(ctx); err != nil {
			return err
		}
		if _, _, err := campaigns.New(db, s.scripts, s.log).Create(ctx, s.Campaign.definition()); err != nil {
			return fmt.Errorf("lab: prepare: %w", err)
		}
		_, err := lots.New(db, s.scripts, s.log, 0, nil).Load(ctx, s.Campaign.ID)
		return err
	})
}

func (s *dibsPackages) withStore(ctx context.Context, do func(*gorm.DB) error) error {
	db, err := openStore(ctx, s.MySQLDSN, s.log)
	if err != nil {
		return err
	}
	return errors.Join(do(db), sqlstore.Close(db))
}

// Claim asks with an idempotency key of its own, as a storefront does.
func (s *dibsPackages) Claim(ctx context.Context, user string) (Outcome, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return 0, fmt.Errorf("lab: %w", err)
	}
	reply, err := s.batch.ask(ctx, lua.ClaimRequest{ID: id, UserID: user, Quantity: 1, Key: id.String()})
	if err != nil {
		return 0, err
	}
	outcome, err := outcomeOf(reply.Outcome)
	if err != nil || outcome != Claimed {
		return outcome, err
	}
	return Claimed, s.at(StepWritten)
}

// Settle waits until MySQL has every claim that Redis handed out.
func (s *dibsPackages) Settle(ctx context.Context) error {
	return s.withStore(ctx, func(db *gorm.DB) error {
		campaigns := campaigns.New(db, s.scripts, s.log)
		return settle(ctx, func(ctx context.Context) (bool, error) {
			state, err := s.scripts.State(ctx, s.Campaign.ID)
			if err != nil {
				return false, err
			}
			books, err := campaigns.Books(ctx, s.Campaign.ID)
			return books.SyncedSeq == state.Seq, err
		})
	})
}

// Close ends the batcher and the client.
func (s *dibsPackages) Close() error {
	s.batch.close()
	return s.rdb.Close()
}

// serveDibsPackages runs the consumer and the writer in this process.
func serveDibsPackages(ctx context.Context, env Env) (Service, error) {
	if err := migrate(ctx, env.MySQLDSN); err != nil {
		return Service{}, err
	}
	parts, err := newDibsParts(env.RedisURL)
	if err != nil {
		return Service{}, err
	}
	db, err := openStore(ctx, env.MySQLDSN, parts.log)
	if err != nil {
		return Service{}, errors.Join(err, parts.rdb.Close())
	}
	closeBoth := func() error { return errors.Join(sqlstore.Close(db), parts.rdb.Close()) }
	stop, err := bookkeeping(ctx, parts, db)
	if err != nil {
		return Service{}, errors.Join(err, closeBoth())
	}
	return Service{Stop: func(ctx context.Context) error { return errors.Join(stop(ctx), closeBoth()) }}, nil
}

// bookkeeping starts a consumer over a writer; stop ends both.
func bookkeeping(ctx context.Context, parts dibsParts, db *gorm.DB) (stop func(context.Context) error, err error) {
	if err := campaigns.CheckPartitions(ctx, db, 1); err != nil {
		return nil, err
	}
	log, err := writer.New(writer.Config{DB: db, Logger: parts.log})
	if err != nil {
		return nil, err
	}
	reader, err := consumer.NewApplier(consumer.ApplierConfig{
		Client: parts.rdb, Name: "lab", Log: log, Logger: parts.log, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return nil, errors.Join(err, log.Close(ctx))
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- reader.Run(running) }()
	return func(ctx context.Context) error {
		cancel()
		return errors.Join(<-ended, log.Close(ctx))
	}, nil
}
