package api

import (
	"context"

	"dibs/lua"
)

// Deps are the rooms behind the API.
type Deps struct {
	Claimer   Claimer
	States    StateReader
	Hydrator  Hydrator
	Campaigns Campaigns
	Claims    Claims
	Resolver  Resolver
	Streams   Streams
	// Ready tells why claims can't be taken now; nil when they can.
	Ready func(ctx context.Context) error
}

var (
	_ Claimer     = (*lua.Scripts)(nil)
	_ StateReader = (*lua.Scripts)(nil)
	_ Streams     = (*lua.Scripts)(nil)
)
