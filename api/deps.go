package api

import (
	"context"
	"fmt"
	"time"

	"dibs/api/claimed"
	"dibs/api/claiming"
	"dibs/api/console"
	"dibs/api/live"
	"dibs/api/operator"
	"dibs/internal/softstate"
	"dibs/lua"
)

// Deps is what the API needs from other packages. All fields are required,
// except where a comment says what nil means.
type Deps struct {
	Claimer   claiming.Claimer
	States    claiming.StateReader
	Shared    Shared
	Loader    Loader
	Campaigns Campaigns
	// nil: shards of campaigns are not refilled, for servers that have none
	Mover    claiming.Mover
	Rows     claiming.Rows // nil: claims are answered without asking MySQL
	Claims   claimed.Claims
	Resolver claimed.Resolver
	Applied  claimed.Applied
	Audit    Audit
	Groups   operator.Groups
	Ledger   operator.Ledger
	Attempts claiming.AttemptCounter // nil: Config.UserRate is of this process alone
	Console  *ConsoleDeps            // nil: there is no console
	// Losses takes reports of claims that Redis lost; nil: none are made.
	Losses claiming.Losses
	// Ready says why no claims can be taken now; nil when some can.
	Ready func(ctx context.Context) error
	// Away names the servers that are away, for /readyz; nil: none are
	// named.
	Away func(ctx context.Context) []string
}

// ConsoleDeps is what the console shows and does beyond what the API has
// routes for.
type ConsoleDeps struct {
	Redis     console.Redis
	MySQL     func(ctx context.Context) (console.Pool, error)
	Campaigns console.Campaigns
	Records   console.Records
	Books     console.Books
	Ended     console.Ended
	Parked    console.ParkedMessages
	Settings  []console.Setting
}

// Shared is what API processes share beside claims.
type Shared interface {
	// UseOnce reports whether an id was not used before by any API
	// process, and remembers it for a time.
	UseOnce(ctx context.Context, id string, keep time.Duration) (isFirst bool, err error)
	live.Redis
}

// Loader loads campaigns into Redis, and deletes them.
type Loader interface {
	claiming.Loader
	// Delete deletes a campaign. Errors: see operator.Config.
	Delete(ctx context.Context, campaignID string) error
}

// Campaigns keeps campaigns in MySQL.
type Campaigns interface {
	operator.Campaigns
	live.Books
}

// Audit keeps who changed what.
type Audit interface {
	operator.Audit
	// Note writes what changes nothing.
	Note(ctx context.Context, action string, after any) error
}

// away is Away, or names nothing.
func (d *Deps) away() func(ctx context.Context) []string {
	if d.Away == nil {
		return func(context.Context) []string { return nil }
	}
	return d.Away
}

func (d *Deps) validate() error {
	if d.Claimer == nil || d.States == nil || d.Shared == nil || d.Loader == nil || d.Campaigns == nil ||
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
