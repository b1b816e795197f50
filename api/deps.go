package api

import (
	"context"
	"fmt"
	"time"

	"dibs/api/attempts"
	"dibs/api/claimed"
	"dibs/api/claiming"
	"dibs/api/console"
	"dibs/api/console/health"
	"dibs/api/console/signin"
	"dibs/api/live"
	"dibs/api/operator"
	"dibs/api/rows"
	"dibs/internal/softstate"
	"dibs/lua"
)

// Deps is what the API needs from other packages. Fields are required
// unless nil is documented.
type Deps struct {
	Claimer   claiming.Claimer
	States    claiming.StateReader
	Shared    Shared
	Loader    Loader
	Campaigns operator.Campaigns
	Books     live.Books
	// nil: shards aren't refilled, for servers without sharded campaigns
	Mover    claiming.Mover
	Rows     rows.Reader // nil: claims are answered without waiting for MySQL
	Claims   claimed.Claims
	Resolver claimed.Resolver
	Applied  claimed.Applied
	Audit    Audit
	Groups   operator.Groups
	Ledger   operator.Ledger
	Attempts attempts.Counter // nil: Config.UserRate is per process
	Console  *ConsoleDeps     // nil: no console
	// Losses receives reports about claims that Redis lost; nil: no reports.
	Losses claiming.Losses
	// Ready returns why no claims can be made now, or nil.
	Ready func(ctx context.Context) error
	// Away names unreachable servers for /readyz; nil: it names none.
	Away func(ctx context.Context) []string
}

// ConsoleDeps is what the console needs beyond the API's routes.
type ConsoleDeps struct {
	Health    health.Sources
	Campaigns console.Campaigns
	Records   console.Records
	Books     console.Books
	Ended     signin.Ended
	Parked    console.ParkedMessages
	Settings  []console.Setting
}

// Shared is state that API processes share, except claims.
type Shared interface {
	// UseOnce records an id for a time, and reports whether no API process
	// had used it.
	UseOnce(ctx context.Context, id string, keep time.Duration) (isFirst bool, err error)
	live.Redis
}

// Loader loads campaigns into Redis and deletes them.
type Loader interface {
	claiming.Loader
	// Delete deletes a campaign. Errors: see operator.Config.
	Delete(ctx context.Context, campaignID string) error
}

// Audit stores who changed what.
type Audit interface {
	operator.Audit
	// Note records an event that changes no data.
	Note(ctx context.Context, action string, after any) error
}

// away is Away, or a function that names none.
func (d *Deps) away() func(ctx context.Context) []string {
	if d.Away == nil {
		return func(context.Context) []string { return nil }
	}
	return d.Away
}

func (d *Deps) validate() error {
	if d.Claimer == nil || d.States == nil || d.Shared == nil || d.Loader == nil || d.Campaigns == nil || d.Books == nil ||
		d.Claims == nil || d.Resolver == nil ||
		d.Applied == nil || d.Audit == nil || d.Groups == nil || d.Ledger == nil || d.Ready == nil {
		return fmt.Errorf("%w: every field of Deps is needed", ErrConfig)
	}
	return nil
}

var (
	_ claiming.Claimer     = (*lua.Scripts)(nil)
	_ claiming.StateReader = (*lua.Scripts)(nil)
	_ Shared               = (*softstate.Store)(nil)
)
