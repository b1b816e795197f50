package consumer

import (
	"context"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"
)

// routerLog gives watermill's Router a slog.Logger. The Router traces every message; watermill's own adapter would build
// the attributes of each before they are thrown away.
type routerLog struct{ log *slog.Logger }

var _ watermill.LoggerAdapter = routerLog{}

// Error logs at slog.LevelError.
func (l routerLog) Error(msg string, err error, fields watermill.LogFields) {
	l.write(slog.LevelError, msg, fields.Add(watermill.LogFields{"error": err}))
}

// Info logs at slog.LevelDebug: operators need none of what the Router logs at Info.
func (l routerLog) Info(msg string, fields watermill.LogFields) {
	l.write(slog.LevelDebug, msg, fields)
}

// Debug logs at slog.LevelDebug.
func (l routerLog) Debug(msg string, fields watermill.LogFields) {
	l.write(slog.LevelDebug, msg, fields)
}

// Trace logs at watermill.LevelTrace.
func (l routerLog) Trace(msg string, fields watermill.LogFields) {
	l.write(watermill.LevelTrace, msg, fields)
}

// With adds fields to all lines.
func (l routerLog) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return routerLog{l.log.With(attributes(fields)...)}
}

func (l routerLog) write(level slog.Level, msg string, fields watermill.LogFields) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, msg, attributes(fields)...)
	}
}

func attributes(fields watermill.LogFields) []any {
	list := make([]any, 0, 2*len(fields))
	for name, value := range fields {
		list = append(list, name, value)
	}
	return list
}
