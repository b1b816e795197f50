// Package config reads the settings of a Dibs process: each setting is defined once, with its variable, flag, default and meaning. A
// flag overrides its variable in the environment.
package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"dibs/lua"
)

// ErrConfig is wrapped by every refusal of a setting; the message names its variable.
var ErrConfig = errors.New("config")

// Prefix starts the name of every variable.
const Prefix = "DIBS_"

// Config holds the settings in force.
type Config struct {
	HTTPAddr    string
	MetricsAddr string // of consumer, syncer and finance; "": none
	ProbeAddr   string // for probes alone; "": none
	RedisURL    string // "": embedded
	MySQLDSN    string // "": embedded SQLite
	MySQLConns  int    // most connections of this process
	FinanceDSN  string // "": MySQLDSN
	DataDir     string // "": a temporary folder

	AdminToken      string
	StorefrontToken string
	ViewerToken     string

	AdminTokenFile, StorefrontTokenFile, ViewerTokenFile string // each holds one token
	TokensFile                                           string

	JWKSFile, JWKSURL      string // one of them
	JWTIssuer, JWTAudience string
	JWKSMaxAge             time.Duration

	TLSCert, TLSKey string // files; "": plain HTTP
	Insecure        bool   // plain HTTP beyond loopback is meant
	HTTPConns       int    // at once
	TrustedProxies  []netip.Prefix
	CORSOrigins     []string
	AccessLog       bool

	Partitions       int
	FlushSize        int           // claims
	FlushInterval    time.Duration // a flush happens at FlushSize or FlushInterval, whichever comes first
	IdleEvict        time.Duration
	Durability       lua.Durability
	Groups           []string
	URL, Token       string // of the API that a command asks, and what it shows there
	WebhooksFile     string // of the endpoints
	WebhooksPrivate  bool   // endpoints may have private addresses
	ShutdownTimeout  time.Duration
	UserRate         float64 // claims a second, per user and process; 0: no limit
	UserRateShared   bool    // the rate is of all processes
	SubjectSecret    string  // "": subjects are stored as they are
	MetricsCampaigns int     // that have series of their own
	Console          bool    // /console is served
	Name             string  // of this process among its group's consumers
	LogLevel         string
	LogFormat        string

	// Unknown are variables with Prefix that are not settings: typing mistakes, or variables of an orchestrator (Kubernetes sets
	// DIBS_SERVICE_HOST for a service called dibs). They deserve a warning, not a refusal.
	Unknown []string

	sources []Source
}

// fromDefault is the Source of a setting that no one set.
const fromDefault = "default"

// Source is one setting as `dibs config` lists it.
type Source struct {
	Variable string `json:"variable"`
	Value    string `json:"value"` // masked if it is a secret
	From     string `json:"from"`  // default, environment, flag
	Meaning  string `json:"meaning"`
}

// Sources lists all settings, in the order of the documentation.
func (c *Config) Sources() []Source { return c.sources }

// Given reports whether a setting comes from outside, by its variable.
func (c *Config) Given(variable string) bool {
	return slices.ContainsFunc(c.sources, func(s Source) bool { return s.Variable == variable && s.From != fromDefault })
}

// Embedded reports whether both servers are built in.
func (c *Config) Embedded() bool { return c.RedisURL == "" && c.MySQLDSN == "" }

// setting is one entry of the table of settings.
type setting struct {
	key      string // name of the flag; the variable is Prefix and the name in upper case with underscores
	fallback string
	meaning  string
	secret   bool
	ifEmpty  string // what the listing shows for an empty value
	set      func(*Config, string) error
}

func (s setting) variable() string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(s.key, "-", "_"))
}

// AddFlags adds a flag for every setting to a command that has none of that name.
func AddFlags(flags *pflag.FlagSet) {
	for _, s := range settings {
		if flags.Lookup(s.key) != nil { // the command has one of its own, as bench has --url
			continue
		}
		flags.String(s.key, s.fallback, s.meaning+" ("+s.variable()+")")
		_ = flags.SetAnnotation(s.key, settingAnnotation, []string{s.variable()}) // fails for a flag that is not there
	}
}

// settingAnnotation marks the flags that AddFlags makes.
const settingAnnotation = "dibs-setting"

// IsSetting reports whether a flag is a setting, which every command has.
func IsSetting(f *pflag.Flag) bool { return f.Annotations[settingAnnotation] != nil }

// Load reads the environment, as "NAME=value" lines, and the flags that were set. Its error wraps ErrConfig.
func Load(environ []string, flags *pflag.FlagSet) (*Config, error) {
	c := &Config{}
	layers, err := c.readLayers(environ, flags)
	if err != nil {
		return nil, err
	}
	for _, s := range settings {
		value := s.fallback
		from := fromDefault
		for _, layer := range layers {
			if layer.values.Exists(s.key) {
				value = layer.values.String(s.key)
				from = layer.name
			}
		}
		if err := s.set(c, value); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, s.variable(), err)
		}
		c.sources = append(c.sources, Source{Variable: s.variable(), Value: s.shown(value), From: from, Meaning: s.meaning})
	}
	if err := c.checkTokens(); err != nil {
		return nil, err
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, fmt.Errorf("%w: %sTLS_CERT and %sTLS_KEY go together: a certificate needs its key", ErrConfig, Prefix, Prefix)
	}
	return c, nil
}

// checkTokens refuses one token for two roles: its holder would have the greater role without anyone meaning it.
func (c *Config) checkTokens() error {
	seen := map[string]string{"": ""}
	for _, t := range []struct{ variable, token string }{
		{"ADMIN_TOKEN", c.AdminToken}, {"STOREFRONT_TOKEN", c.StorefrontToken}, {"VIEWER_TOKEN", c.ViewerToken},
	} {
		if other := seen[t.token]; other != "" {
			return fmt.Errorf("%w: %s%s and %s%s: are the same token: each role needs a token of its own",
				ErrConfig, Prefix, other, Prefix, t.variable)
		}
		if t.token != "" {
			seen[t.token] = t.variable
		}
	}
	return nil
}

func (s setting) shown(value string) string {
	if value == "" {
		return s.ifEmpty
	}
	if s.secret {
		return mask(s.key, value)
	}
	return value
}

// layer is one place where settings come from. A later layer overrides an earlier one.
type layer struct {
	name   string
	values *koanf.Koanf
}

func (c *Config) readLayers(environ []string, flags *pflag.FlagSet) ([]layer, error) {
	known := make(map[string]any, len(settings))
	for _, s := range settings {
		known[s.key] = s.fallback
	}
	base := koanf.New(".")
	fromEnv := koanf.New(".")
	fromFlags := koanf.New(".")
	if err := base.Load(confmap.Provider(known, "."), nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	err := fromEnv.Load(env.Provider(".", env.Opt{
		Prefix:      Prefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			key := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, Prefix), "_", "-"))
			if !base.Exists(key) {
				c.Unknown = append(c.Unknown, name)
			}
			if value == "" {
				return "", nil // an empty variable counts as not set
			}
			return key, value
		},
	}), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if flags != nil {
		changed := pflag.NewFlagSet("changed", pflag.ContinueOnError)
		flags.Visit(changed.AddFlag)
		if err := fromFlags.Load(posflag.Provider(changed, ".", fromFlags), nil); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return []layer{{"environment", fromEnv}, {"flag", fromFlags}}, nil
}

// BooksDSN returns the DSN of the finance service's database.
func (c *Config) BooksDSN() string {
	if c.FinanceDSN != "" {
		return c.FinanceDSN
	}
	return c.MySQLDSN
}

// CheckFinance refuses settings that lack what the finance service needs: Redis and a database.
func (c *Config) CheckFinance() error {
	switch {
	case c.RedisURL == "":
		return fmt.Errorf("%w: %sREDIS_URL: is not set: the finance service needs the Redis that the API writes to", ErrConfig, Prefix)
	case c.BooksDSN() == "":
		return fmt.Errorf("%w: %sFINANCE_DSN: is not set, nor is %sMYSQL_DSN: the finance service needs a database", ErrConfig, Prefix, Prefix)
	}
	return nil
}

// CheckServers refuses one server without the other. Commands that need both servers call it.
func (c *Config) CheckServers() error {
	if (c.RedisURL == "") != (c.MySQLDSN == "") {
		return fmt.Errorf("%w: %sREDIS_URL and %sMYSQL_DSN go together: set both for real servers, or neither for the embedded ones",
			ErrConfig, Prefix, Prefix)
	}
	return nil
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, value string) error {
		*field(c) = value
		return nil
	}
}

func oneOf(field func(*Config) *string, allowed ...string) func(*Config, string) error {
	return func(c *Config, value string) error {
		if slices.Contains(allowed, value) {
			*field(c) = value
			return nil
		}
		return fmt.Errorf("must be %s, not %q", strings.Join(allowed, " or "), value)
	}
}

func boolean(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, value string) (err error) {
		*field(c), err = strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("must be 1 or 0, not %q", value)
		}
		return nil
	}
}

func integer(field func(*Config) *int, least, most int) func(*Config, string) error {
	return func(c *Config, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return fmt.Errorf("must be a whole number from %d to %d, not %q", least, most, value)
		}
		*field(c) = n
		return nil
	}
}

func duration(field func(*Config) *time.Duration, least, most time.Duration) func(*Config, string) error {
	return func(c *Config, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < least || d > most {
			return fmt.Errorf("must be a duration from %s to %s, not %q", least, most, value)
		}
		*field(c) = d
		return nil
	}
}

func rate(field func(*Config) *float64) func(*Config, string) error {
	return func(c *Config, value string) error {
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || f < 0 || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("must be a number of 0 or more, not %q", value)
		}
		*field(c) = f
		return nil
	}
}
