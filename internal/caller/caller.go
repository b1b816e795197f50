// Package caller carries the caller, and by which request, through the work
// that a request causes: for the audit, the log, and for what the caller may
// touch.
package caller

import (
	"context"
	"log/slog"
)

// Anonymous is the actor of a service without tokens.
const Anonymous = "anonymous"

// Caller is the caller.
type Caller struct {
	Actor     string // the name of its token, or the sub of its JWT
	RequestID string
	User      string // the only user whom it may act for; "": any
	// Still reports whether the caller may go on with what it was allowed to
	// begin; nil: it may. Answers that last ask it now and then.
	Still func() bool
}

// MayGoOn reports whether the caller may go on with what it was allowed to
// begin.
func (c *Caller) MayGoOn() bool { return c.Still == nil || c.Still() }

// MayActFor reports whether the caller may claim for a user, and see and
// release what the user has.
func (c *Caller) MayActFor(userID string) bool { return c.User == "" || c.User == userID }

type key struct{}

// With returns a context that carries c. Who checks the caller fills in c
// later.
func With(ctx context.Context, c *Caller) context.Context { return context.WithValue(ctx, key{}, c) }

// Of is the caller of a context; an empty one when it carries none.
func Of(ctx context.Context) *Caller {
	if c, ok := ctx.Value(key{}).(*Caller); ok {
		return c
	}
	return &Caller{}
}

// LogHandler adds the id of the request to each line that is logged with its
// context.
func LogHandler(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ slog.Handler }

func (h logHandler) Handle(ctx context.Context, record slog.Record) error {
	if id := Of(ctx).RequestID; id != "" {
		record.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, record) //nolint:wrapcheck // a handler hands on what the next says
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }
