package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dibs/api/auth"
	"dibs/internal/address"
	"dibs/internal/tracing"
	"dibs/lua"
)

// Defaults of Config.
const (
	DefaultAddr  = "127.0.0.1:8080"
	DefaultConns = 10_000
	// DefaultIdleTimeout: some load balancers reuse connections that were idle
	// for 600 s.
	DefaultIdleTimeout    = 620 * time.Second
	DefaultClaimsInFlight = 1
	DefaultQueueWait      = 2 * time.Second // after that, users have retried
	// DefaultCallTimeout: a script call takes a millisecond; this is for a
	// hanging Redis.
	DefaultCallTimeout      = 3 * time.Second
	DefaultShutdownTimeout  = 15 * time.Second
	DefaultMetricsCampaigns = 50
)

// Tokens are the accepted bearer tokens.
type Tokens = auth.Tokens

// Config of the API. Zero fields take the defaults above.
type Config struct {
	Addr    string // host:port of Serve's listener
	Version string // of the program, for the OpenAPI document
	Info    Info   // answer of GET /v1/info
	Tokens  Tokens
	TLS     TLS
	// Insecure allows plain HTTP beyond loopback.
	Insecure  bool
	AccessLog bool // log each request
	Conns     int  // concurrent connections; more wait to be accepted
	// IdleTimeout is how long a connection may wait for its next request.
	IdleTimeout time.Duration

	TrustedProxies Proxies
	// scheme://host[:port] of sites whose pages may call the API; "*" is
	// refused
	CORSOrigins []string

	ClaimsPerCall int // claims in one script call, at most lua.ClaimsMax, the default
	// ClaimsInFlight is the concurrent script calls for one campaign. 2
	// measured no faster than 1, and may reorder the claims of a batch.
	ClaimsInFlight int
	// claims that waited longer are refused as unavailable, unsent
	QueueWait   time.Duration
	CallTimeout time.Duration // of one call to Redis
	// the number of campaigns with their own series, the busiest; below 0:
	// none
	MetricsCampaigns int
	// claims a second of one user: in this process, or with Deps.Attempts
	// in all processes; 0 is no limit
	UserRate float64

	SubjectSecret string // subjects are stored as digests by this secret; "": unchanged

	ShutdownTimeout time.Duration // of the whole shutdown

	Tracer *tracing.Tracer // nil: no traces
	Logger *slog.Logger
	// set both or neither with Gatherer; neither means a new registry
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
	// of the claim path's caches; default time.Now
	Clock func() time.Time
}

// WithDefaults returns a copy with defaults for zero fields.
func (c Config) WithDefaults() Config {
	c.Addr = cmp.Or(c.Addr, DefaultAddr)
	c.Version = cmp.Or(c.Version, "dev")
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	c.Conns = cmp.Or(c.Conns, DefaultConns)
	c.ClaimsPerCall = cmp.Or(c.ClaimsPerCall, lua.ClaimsMax)
	c.ClaimsInFlight = cmp.Or(c.ClaimsInFlight, DefaultClaimsInFlight)
	c.QueueWait = cmp.Or(c.QueueWait, DefaultQueueWait)
	c.CallTimeout = cmp.Or(c.CallTimeout, DefaultCallTimeout)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, DefaultShutdownTimeout)
	c.MetricsCampaigns = cmp.Or(c.MetricsCampaigns, DefaultMetricsCampaigns)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil && c.Gatherer == nil {
		own := prometheus.NewRegistry()
		c.Registerer = own
		c.Gatherer = own
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return c
}

// ErrConfig is wrapped by every refusal of a Config. The message names the
// field.
var ErrConfig = errors.New("api: bad config")

// Validate checks a Config with defaults.
func (c Config) Validate() error {
	if c.ClaimsPerCall < 1 || c.ClaimsPerCall > lua.ClaimsMax {
		return fmt.Errorf("%w: ClaimsPerCall must be 1 to %d, not %d", ErrConfig, lua.ClaimsMax, c.ClaimsPerCall)
	}
	if c.UserRate < 0 || c.UserRate > 1e6 {
		return fmt.Errorf("%w: UserRate must be 0 to 1000000, not %g", ErrConfig, c.UserRate)
	}
	for _, origin := range c.CORSOrigins {
		if err := address.CheckOrigin(origin); err != nil {
			return fmt.Errorf("%w: CORSOrigins: %w, not %q", ErrConfig, err, origin)
		}
	}
	if c.Registerer == nil || c.Gatherer == nil {
		return fmt.Errorf("%w: Registerer and Gatherer must come together", ErrConfig)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"ClaimsInFlight", int64(c.ClaimsInFlight)}, {"QueueWait", int64(c.QueueWait)}, {"CallTimeout", int64(c.CallTimeout)},
		{"ShutdownTimeout", int64(c.ShutdownTimeout)}, {"Conns", int64(c.Conns)},
	} {
		if f.value < 1 {
			return fmt.Errorf("%w: %s must be above 0", ErrConfig, f.name)
		}
	}
	if err := (auth.Door{Addr: c.Addr, TLS: c.TLS != TLS{}, Insecure: c.Insecure}).Check(c.Tokens); err != nil {
		return fmt.Errorf("%w: Addr: %w", ErrConfig, err)
	}
	return nil
}
