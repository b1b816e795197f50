// Package caller carries the caller and the request id through a
// request's work: for the audit, the log and permissions.
package caller

import (
	"context"
	"log/slog"
)

// Anonymous is the actor of a service without tokens.
const Anonymous = "anonymous"

// Caller is who made a request.
type Caller struct {
	Actor     string // name of the token, or sub of the JWT
	RequestID string
	User      string // the only user it may act for; "": any
	// Still reports whether the caller's permission is still valid;
	// nil: yes. Long replies call it repeatedly.
	Still func() bool
}

// MayGoOn reports whether the caller's permission is still valid.
func (c *Caller) MayGoOn() bool { return c.Still == nil || c.Still() }

// MayActFor reports whether the caller may claim for a user, and
// read and release that user's claims.
func (c *Caller) MayActFor(userID string) bool { return c.User == "" || c.User == userID }

type key struct{}

// With returns a context that carries c. Authentication fills in c later.
func With(ctx context.Context, c *Caller) context.Context { return context.WithValue(ctx, key{}, c) }

// Of returns a context's caller, or an empty one.
func Of(ctx context.Context) *Caller {
	if c, ok := ctx.Value(key{}).(*Caller); ok {
		return c
	}
	return &Caller{}
}

// LogHandler adds the request's id to each line logged with its context.
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
