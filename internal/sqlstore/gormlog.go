package sqlstore

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"gorm.io/gorm/logger"
)

// gormLog writes slow statements and gorm's own warnings to slog. Errors of
// statements are returned to the caller and not logged here.
type gormLog struct {
	log  *slog.Logger
	slow time.Duration
}

var _ logger.Interface = gormLog{}

// LogMode changes nothing: slog's handler filters by level.
func (l gormLog) LogMode(logger.LogLevel) logger.Interface { return l }

// Info logs at the level Debug.
func (l gormLog) Info(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "gorm: "+fmt.Sprintf(format, args...))
}

// Warn logs a warning of gorm.
func (l gormLog) Warn(ctx context.Context, format string, args ...any) {
	l.log.WarnContext(ctx, "gorm: "+fmt.Sprintf(format, args...))
}

// Error logs an error of gorm.
func (l gormLog) Error(ctx context.Context, format string, args ...any) {
	l.log.ErrorContext(ctx, "gorm: "+fmt.Sprintf(format, args...))
}

// Trace logs a slow statement.
func (l gormLog) Trace(ctx context.Context, begin time.Time, statement func() (sql string, rows int64), _ error) {
	took := time.Since(begin)
	if took < l.slow {
		return
	}
	text, rows := statement()
	l.log.LogAttrs(ctx, slog.LevelWarn, "slow statement",
		slog.Duration("took", took), slog.Int64("rows", rows), slog.String("sql", text))
}

// ParamsFilter keeps values out of the log: they are personal data.
func (l gormLog) ParamsFilter(_ context.Context, sql string, _ ...any) (string, []any) {
	return sql, nil
}
