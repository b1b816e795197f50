package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"dibs/internal/migrations"
	"dibs/internal/redisconn"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/lots"
	"dibs/syncer/offset"
)

// dibsKeys are patterns of Dibs' keys, of all partitions. Dibs' usual tables
// and keys are used, as the lab has its own database and Redis.
var dibsKeys = []string{"dibs:{p*", lua.InfoKey}

// noLog discards Dibs' log: errors are returned.
var noLog = slog.New(slog.DiscardHandler)

// dibsPackages claims without HTTP: claimers share calls of the claim script,
// which takes the unit and adds the event in one step. `dibs serve` stores
// the stream's claims, as for dibsHTTP.
type dibsPackages struct {
	*dibsHTTP

	rdb     redis.UniversalClient
	scripts *lua.Scripts
	batch   batcher
}

func newDibsPackages(env Env) (Strategy, error) {
	service, err := openDibs(env)
	if err != nil {
		return nil, err
	}
	rdb, err := redisconn.Connect(env.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	s := &dibsPackages{dibsHTTP: service, rdb: rdb}
	var meta lua.Meta
	s.scripts, err = lua.New(rdb, lua.Options{})
	if err == nil {
		meta, err = s.scripts.MetaOf(&models.Campaign{
			ID: env.Campaign.ID, Kind: models.KindCoupon, Total: env.Campaign.Units, PerUser: 1, TimeZone: "UTC",
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lab: %w", err), rdb.Close())
	}
	s.batch.claim = func(ctx context.Context, reqs []lua.ClaimRequest) ([]lua.ClaimReply, error) {
		replies, _, err := s.scripts.Claim(ctx, meta, reqs)
		return replies, err
	}
	return s, nil
}

// Prepare creates the campaign and loads it into Redis.
func (s *dibsPackages) Prepare(ctx context.Context) error {
	err := errors.Join(s.dibsHTTP.Prepare(ctx), s.scripts.Preload(ctx))
	if err != nil {
		return err
	}
	return withStore(ctx, s.MySQLDSN, func(db *gorm.DB) error {
		_, err := lots.New(db, s.scripts, noLog, 0, nil).Load(ctx, s.Campaign.ID)
		return err
	})
}

// Claim uses a new idempotency key, as a storefront does.
func (s *dibsPackages) Claim(ctx context.Context, user string) (Outcome, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("lab: %w", err)
	}
	reply, err := s.batch.ask(ctx, lua.ClaimRequest{ID: id, UserID: user, Quantity: 1, Key: id.String()})
	if err != nil {
		return "", err
	}
	switch reply.Outcome {
	case models.OutcomeClaimed:
		return Claimed, s.at(StepWritten)
	case models.OutcomeSoldOut:
		return SoldOut, nil
	case models.OutcomeUserLimit:
		return OverLimit, nil
	default:
		return "", fmt.Errorf("%w: %q", ErrDibs, reply.Outcome)
	}
}

// Close closes the connections.
func (s *dibsPackages) Close() error { return errors.Join(s.dibsHTTP.Close(), s.rdb.Close()) }

// withStore opens Dibs' database for one call.
func withStore(ctx context.Context, dsn string, do func(*gorm.DB) error) error {
	db, err := sqlstore.Open(ctx, sqlstore.Config{DSN: dsn, Logger: noLog})
	if err != nil {
		return err
	}
	return errors.Join(do(db), sqlstore.Close(db))
}

// migrate migrates the lab's database. Redis is empty, because
// the lab deletes its keys.
func migrate(ctx context.Context, env Env) error {
	if _, err := migrations.Up(ctx, env.DB, migrations.MySQL); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	return withStore(ctx, env.MySQLDSN, func(db *gorm.DB) error { return offset.Reset(ctx, db) })
}
