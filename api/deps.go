package api

import (
	"context"

	"dibs/api/claimed"
	"dibs/api/claiming"
	"dibs/api/operator"
	"dibs/lua"
)

// Deps are the rooms behind the API.
type Deps struct {
	Claimer   claiming.Claimer
	States    claiming.StateReader
	Hydrator  claiming.Hydrator
	Campaigns operator.Campaigns
	Claims    claimed.Claims
	Resolver  claimed.Resolver
	Streams   claimed.Streams
	// Ready tells why claims can't be taken now; nil when they can.
	Ready func(ctx context.Context) error
}

var (
	_ claiming.Claimer     = (*lua.Scripts)(nil)
	_ claiming.StateReader = (*lua.Scripts)(nil)
	_ claimed.Streams      = (*lua.Scripts)(nil)
)
