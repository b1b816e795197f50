package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/migrations"
	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/writer"

	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"
)

// Dibs' own tables and keys are used as they are: the lab's database and Redis are its own, see checkEmpty.

// dibsKeys are patterns of the keys of a Dibs, whatever the partition.
var dibsKeys = []string{"dibs:{p*", lua.InfoKey}

// dibsParts are what both of Dibs' strategies are made of.
type dibsParts struct {
	rdb     redis.UniversalClient
	scripts *lua.Scripts
	log     *slog.Logger
}

func newDibsParts(redisURL string) (dibsParts, error) {
	rdb, err := lua.Connect(redisURL)
	if err != nil {
		return dibsParts{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	scripts, err := lua.New(rdb, lua.Options{})
	if err != nil {
		_ = rdb.Close()
		return dibsParts{}, fmt.Errorf("lab: %w", err)
	}
	return dibsParts{rdb: rdb, scripts: scripts, log: slog.New(slog.DiscardHandler)}, nil
}

// openStore opens Dibs' database.
func openStore(ctx context.Context, dsn string, log *slog.Logger) (*gorm.DB, error) {
	return sqlstore.Open(ctx, sqlstore.Config{DSN: dsn, Logger: log})
}

// migrate brings the lab's database to Dibs' schema. Redis is empty: the lab removes what it made there.
func migrate(ctx context.Context, dsn string) error {
	db, err := openSQL(dsn, 2)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(ctx, db, migrations.MySQL); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	store, err := openStore(ctx, dsn, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return errors.Join(writer.BeginAnew(ctx, store), sqlstore.Close(store))
}

// definition is the campaign in Dibs' words.
func (c Campaign) definition() models.Campaign {
	return models.Campaign{ID: c.ID, Kind: models.KindCoupon, Total: c.Units, PerUser: c.PerUser, TimeZone: "UTC"}
}

// outcomeOf reads what Dibs says in the words of the lab.
func outcomeOf(o models.Outcome) (Outcome, error) {
	switch o {
	case models.OutcomeClaimed, models.OutcomeReplayed:
		return Claimed, nil
	case models.OutcomeSoldOut:
		return SoldOut, nil
	case models.OutcomeUserLimit:
		return OverLimit, nil
	default:
		return 0, fmt.Errorf("lab: dibs says %q", o) //nolint:err113 // reported, not handled
	}
}

const (
	settlePoll = 10 * time.Millisecond
	settleMax  = 2 * time.Minute
)

// settle polls until done says so.
func settle(ctx context.Context, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, settleMax)
	defer cancel()
	for {
		settled, err := done(ctx)
		if err != nil || settled {
			return err
		}
		if err := sleep.For(ctx, settlePoll); err != nil {
			return fmt.Errorf("%w: claims were still on their way after %s", ErrBooks, settleMax)
		}
	}
}
