package sqlstore

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"gorm.io/gorm/logger"
)

// gormLog hands gorm's log to slog: statements that are slow, and gorm's own complaints. Errors of statements are
// returned to the caller, who judges them; logging them too would tell them twice.
type gormLog struct {
	log  *slog.Logger
	slow time.Duration
}

var _ logger.Interface = gormLog{}

// LogMode changes nothing: slog's handler decides what is shown.
func (l gormLog) LogMode(logger.LogLevel) logger.Interface { return l }

// Info is gorm's small talk.
func (l gormLog) Info(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "gorm: "+fmt.Sprintf(format, args...))
}

// Warn is a complaint of gorm's.
func (l gormLog) Warn(ctx context.Context, format string, args ...any) {
	l.log.WarnContext(ctx, "gorm: "+fmt.Sprintf(format, args...))
}

// Error is a complaint of gorm's.
func (l gormLog) Error(ctx context.Context, format string, args ...any) {
	l.log.ErrorContext(ctx, "gorm: "+fmt.Sprintf(format, args...))
}

// Trace is called after each statement.
func (l gormLog) Trace(ctx context.Context, begin time.Time, statement func() (sql string, rows int64), _ error) {
	took := time.Since(begin)
	if took < l.slow {
		return
	}
	text, rows := statement()
	l.log.LogAttrs(ctx, slog.LevelWarn, "slow statement",
		slog.Duration("took", took), slog.Int64("rows", rows), slog.String("sql", text))
}

// ParamsFilter keeps the values, which are people's, out of the log.
func (l gormLog) ParamsFilter(_ context.Context, sql string, _ ...any) (string, []any) {
	return sql, nil
}
