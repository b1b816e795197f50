package operator

import (
	"context"
	"log/slog"
	"time"

	"dibs/lua"

	"golang.org/x/time/rate"
)

// operatorConfig is what the operators' routes need; all of it.
type Config struct {
	Campaigns Campaigns
	// State reads what Redis holds of a campaign, see claiming.StateReader.
	State func(ctx context.Context, campaignID string) (lua.State, error)
	// Hydrate brings a campaign into Redis, see claiming.Hydrator.
	Hydrate func(ctx context.Context, campaignID string) (lua.Meta, error)
	// Changed is told of each campaign that was changed, or may have been.
	Changed func(campaignID string)

	AdminTimeout       time.Duration
	PacketsTimeout     time.Duration
	PacketsReadTimeout time.Duration
	WriteTimeout       time.Duration

	Logger *slog.Logger
}

// operatorRoutes answers the routes of operators: campaigns, their packets and their stock.
type Routes struct {
	cfg         Config
	log         *slog.Logger
	packetPosts chan struct{}  // holds a token for each list of packets that is in memory
	complain    rate.Sometimes // bounds what a Redis or MySQL that is away writes into the log
}

func New(cfg Config) *Routes {
	return &Routes{
		cfg: cfg, log: cfg.Logger, packetPosts: make(chan struct{}, packetPostsMax), complain: rate.Sometimes{Interval: time.Second},
	}
}
