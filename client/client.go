package client

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Defaults of Config.
const (
	DefaultAttempts       = 5
	DefaultAttemptTimeout = 10 * time.Second
	DefaultInitialBackoff = 50 * time.Millisecond
	DefaultMaxBackoff     = 2 * time.Second
	DefaultConnections    = 256
	DefaultBatch          = 256
)

const (
	dialTimeout = 3 * time.Second
	idleTimeout = 90 * time.Second
	attemptsMax = 100 // bounds Config.Attempts
	// answerMax bounds an answer, in bytes. A thousand claims with the
	// longest ids are 2 MB.
	answerMax = 8 << 20
	// longAnswerMax is answerMax for a settlement, with some 150 bytes for
	// each campaign and type of event, and for a page of the ledger, whose
	// events may each name 500 claims.
	longAnswerMax = 64 << 20
)

// ErrConfig is wrapped by every refusal of a Config. The message names the
// field.
var ErrConfig = errors.New("client: bad config")

// Config of a Client. BaseURL is required. Other zero fields take the
// defaults above.
type Config struct {
	BaseURL string // address of the service, such as https://dibs.internal
	Token   string // bearer token; "": none

	Attempts       int           // most attempts of a call
	AttemptTimeout time.Duration // of each
	// before the second attempt; doubles with each attempt, half of it random
	InitialBackoff time.Duration
	MaxBackoff     time.Duration

	// Connections bounds the connections, in use or idle. Further calls
	// wait. In a rush, few connections mean waiting, and new connections
	// cost time to open.
	Connections int
	// Batch bounds the claims in one request, up to 256; 1 disables
	// sharing. Sharing needs concurrent callers of one Client. A shared
	// request has no values of any caller's context. Disable it if HTTP
	// reads such values, for example a token per user.
	Batch int
	// HTTP replaces the client's own, including Connections. Its Timeout
	// also bounds each attempt. Redirects are never followed.
	HTTP *http.Client
}

// WithDefaults returns a copy with defaults for zero fields.
func (c Config) WithDefaults() Config {
	c.Attempts = cmp.Or(c.Attempts, DefaultAttempts)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, DefaultAttemptTimeout)
	c.InitialBackoff = cmp.Or(c.InitialBackoff, DefaultInitialBackoff)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, DefaultMaxBackoff)
	c.Connections = cmp.Or(c.Connections, DefaultConnections)
	c.Batch = cmp.Or(c.Batch, DefaultBatch)
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: newTransport(c.Connections)}
	}
	return c
}

// Validate checks a Config with defaults.
func (c Config) Validate() error {
	base, err := url.Parse(c.BaseURL)
	switch {
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.Fragment != "":
		return fmt.Errorf("%w: BaseURL must be http:// or https://, a host and perhaps a path", ErrConfig)
	case base.User != nil:
		return fmt.Errorf("%w: BaseURL must hold no password, the service takes a Token", ErrConfig)
	case strings.ContainsAny(c.Token, "\r\n"):
		return fmt.Errorf("%w: Token must be one line", ErrConfig)
	case c.Attempts < 1 || c.Attempts > attemptsMax:
		return fmt.Errorf("%w: Attempts must be 1 to %d", ErrConfig, attemptsMax)
	case c.AttemptTimeout < 0 || c.InitialBackoff < 0 || c.MaxBackoff < c.InitialBackoff:
		return fmt.Errorf("%w: AttemptTimeout and InitialBackoff must be positive, MaxBackoff no less than InitialBackoff", ErrConfig)
	case c.Connections < 1:
		return fmt.Errorf("%w: Connections must be positive", ErrConfig)
	case c.Batch < 1 || c.Batch > DefaultBatch:
		return fmt.Errorf("%w: Batch must be 1 to %d", ErrConfig, DefaultBatch)
	}
	return nil
}

func newTransport(connections int) *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns: connections, MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, IdleConnTimeout: idleTimeout,
		ForceAttemptHTTP2: true, DisableCompression: true,
	}
}

// Client calls one service. Goroutines should share one, and with it its
// connections.
type Client struct {
	cfg    Config
	base   string
	http   http.Client
	gather *batcher
}

// New makes a Client without connecting. Errors: ErrConfig.
func New(cfg Config) (*Client, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, base: strings.TrimRight(cfg.BaseURL, "/"), http: *cfg.HTTP}
	c.gather = newGatherer(c)
	// A redirect's target isn't the service. It must get neither the token
	// nor the claim.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// Disconnect closes idle connections. The client stays usable.
func (c *Client) Disconnect() { c.http.CloseIdleConnections() }
