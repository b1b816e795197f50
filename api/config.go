package api

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dibs/lua"
	"dibs/models"
)

// Defaults of Config.
const (
	DefaultAddr            = "127.0.0.1:8080"
	DefaultClaimsInFlight  = 1
	DefaultQueueMax        = 8192            // at 25,000 claims a second a third of a second's worth
	DefaultQueueWait       = 2 * time.Second // longer, and the user has pressed the button again
	DefaultCallTimeout     = 3 * time.Second // a script call takes a millisecond; this is for a Redis that hangs
	DefaultLookupTimeout   = 2 * time.Second
	DefaultLookupsMax      = 16
	DefaultAdminTimeout    = 5 * time.Second
	DefaultSoldOutFor      = 50 * time.Millisecond // a restock elsewhere is seen within this
	DefaultCampaignsMax    = 10_000
	DefaultCampaignIdle    = 10 * time.Minute
	DefaultUsersMax        = 100_000
	DefaultGroup           = models.GroupSyncer
	DefaultResolveWait     = 2 * time.Second
	DefaultTailMax         = 200_000 // about 100 MB
	DefaultTailIdle        = 10 * time.Second
	DefaultHeaderTimeout   = 5 * time.Second
	DefaultReadTimeout     = 10 * time.Second
	DefaultWriteTimeout    = 30 * time.Second // more than all waits above together
	DefaultPacketsTimeout  = 2 * time.Minute  // a million packets take a fraction of it
	DefaultPacketsRead     = time.Minute
	DefaultIdleTimeout     = 2 * time.Minute
	DefaultHeaderBytesMax  = 16 << 10
	DefaultShutdownTimeout = 15 * time.Second
	DefaultFarewell        = 300 * time.Millisecond
)

// Config of the API. Zero fields take the defaults above.
type Config struct {
	Addr    string // host:port to listen on
	Version string // of the program, for the OpenAPI document
	Tokens  Tokens

	ClaimsPerCall int // claims in one script call, at most lua.ClaimsMax
	// ClaimsInFlight is script calls at once for one campaign; 2 measured no faster than 1, and lets claims of one batch change places.
	ClaimsInFlight int
	QueueMax       int           // claims waiting for one campaign; more are refused as unavailable
	QueueWait      time.Duration // a claim that waited longer is refused as unavailable instead of being sent
	CallTimeout    time.Duration // of one script call
	LookupTimeout  time.Duration // of finding out about a campaign on its first claim
	LookupsMax     int           // campaigns looked up at once
	AdminTimeout   time.Duration // of one call to Campaigns
	PacketsTimeout time.Duration // of adding packets to a campaign
	SoldOutFor     time.Duration // how long a campaign is known to be sold out before one claim looks again
	CampaignsMax   int           // campaigns kept in memory
	CampaignIdle   time.Duration // a campaign without claims for this long leaves memory

	Group       string        // consumer group whose acknowledgement says that MySQL has a claim
	ResolveWait time.Duration // how long a redeem or a release waits for the row of a claim that was answered a moment ago

	TailMax  int           // unsynced claims that look-ups keep in memory; with more, what is not among them is unknown
	TailIdle time.Duration // without a look-up for this long they leave memory

	UserRate float64 // claims a second and user in this process; 0 is no limit
	UsersMax int     // users whose rate is remembered

	HeaderTimeout time.Duration // to read a request's headers
	ReadTimeout   time.Duration // to read a whole request
	WriteTimeout  time.Duration
	IdleTimeout   time.Duration
	// PacketsReadTimeout stands in for ReadTimeout where a list of packets is read.
	PacketsReadTimeout time.Duration
	HeaderBytesMax     int
	ShutdownTimeout    time.Duration // of a stop, from beginning to end
	// Farewell is how long a stop goes on answering, with /readyz saying no and each answer closing its connection. Without
	// it a request that is on its way on a kept-alive connection would meet the closing of that connection.
	Farewell time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer // with Gatherer: both or neither; neither is a registry of its own
	Gatherer   prometheus.Gatherer
	Clock      func() time.Time // for how long things are known; nil is time.Now
}

// WithDefaults returns a copy whose zero fields hold the defaults.
func (c Config) WithDefaults() Config {
	def(&c.Addr, DefaultAddr)
	def(&c.Version, "dev")
	def(&c.ClaimsPerCall, lua.ClaimsMax)
	def(&c.ClaimsInFlight, DefaultClaimsInFlight)
	def(&c.QueueMax, DefaultQueueMax)
	def(&c.QueueWait, DefaultQueueWait)
	def(&c.CallTimeout, DefaultCallTimeout)
	def(&c.LookupTimeout, DefaultLookupTimeout)
	def(&c.LookupsMax, DefaultLookupsMax)
	def(&c.AdminTimeout, DefaultAdminTimeout)
	def(&c.SoldOutFor, DefaultSoldOutFor)
	def(&c.CampaignsMax, DefaultCampaignsMax)
	def(&c.CampaignIdle, DefaultCampaignIdle)
	def(&c.UsersMax, DefaultUsersMax)
	def(&c.Group, DefaultGroup)
	def(&c.ResolveWait, DefaultResolveWait)
	def(&c.TailMax, DefaultTailMax)
	def(&c.TailIdle, DefaultTailIdle)
	def(&c.HeaderTimeout, DefaultHeaderTimeout)
	def(&c.ReadTimeout, DefaultReadTimeout)
	def(&c.WriteTimeout, DefaultWriteTimeout)
	def(&c.PacketsTimeout, DefaultPacketsTimeout)
	def(&c.PacketsReadTimeout, DefaultPacketsRead)
	def(&c.IdleTimeout, DefaultIdleTimeout)
	def(&c.HeaderBytesMax, DefaultHeaderBytesMax)
	def(&c.ShutdownTimeout, DefaultShutdownTimeout)
	def(&c.Farewell, DefaultFarewell)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil && c.Gatherer == nil {
		own := prometheus.NewRegistry()
		c.Registerer, c.Gatherer = own, own
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// ErrConfig is wrapped by every refusal of a Config; the message names the field.
var ErrConfig = errors.New("api: bad config")

// Validate checks a Config that has its defaults.
func (c Config) Validate() error {
	if c.ClaimsPerCall < 1 || c.ClaimsPerCall > lua.ClaimsMax {
		return fmt.Errorf("%w: ClaimsPerCall must be 1 to %d, not %d", ErrConfig, lua.ClaimsMax, c.ClaimsPerCall)
	}
	if c.UserRate < 0 || c.UserRate > 1e6 {
		return fmt.Errorf("%w: UserRate must be 0 to 1000000, not %g", ErrConfig, c.UserRate)
	}
	if c.Registerer == nil || c.Gatherer == nil {
		return fmt.Errorf("%w: Registerer and Gatherer must come together", ErrConfig)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"ClaimsInFlight", int64(c.ClaimsInFlight)}, {"QueueMax", int64(c.QueueMax)}, {"QueueWait", int64(c.QueueWait)},
		{"CallTimeout", int64(c.CallTimeout)}, {"LookupTimeout", int64(c.LookupTimeout)}, {"LookupsMax", int64(c.LookupsMax)},
		{"AdminTimeout", int64(c.AdminTimeout)}, {"SoldOutFor", int64(c.SoldOutFor)}, {"CampaignsMax", int64(c.CampaignsMax)},
		{"CampaignIdle", int64(c.CampaignIdle)}, {"ResolveWait", int64(c.ResolveWait)}, {"TailMax", int64(c.TailMax)},
		{"TailIdle", int64(c.TailIdle)},
		{"UsersMax", int64(c.UsersMax)}, {"HeaderTimeout", int64(c.HeaderTimeout)},
		{"ReadTimeout", int64(c.ReadTimeout)}, {"WriteTimeout", int64(c.WriteTimeout)}, {"IdleTimeout", int64(c.IdleTimeout)},
		{"HeaderBytesMax", int64(c.HeaderBytesMax)}, {"ShutdownTimeout", int64(c.ShutdownTimeout)},
		{"Farewell", int64(c.Farewell)}, {"PacketsTimeout", int64(c.PacketsTimeout)}, {"PacketsReadTimeout", int64(c.PacketsReadTimeout)},
	} {
		if f.value < 1 {
			return fmt.Errorf("%w: %s must be above 0", ErrConfig, f.name)
		}
	}
	return CheckListen(c.Addr, c.Tokens)
}
