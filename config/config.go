// Package config is what a Dibs process is told from outside: every setting once, with its variable, its flag, its default
// and its meaning. The environment is read first, flags win over it.
package config

import (
	"errors"
	"fmt"
	"math"
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

// Config is what is in force.
type Config struct {
	HTTPAddr    string
	MetricsAddr string // of consumer, syncer and finance; "" is none
	RedisURL    string // "" is embedded
	MySQLDSN    string // "" is embedded SQLite
	MySQLConns  int    // most connections of this process
	FinanceDSN  string // "" is MySQLDSN
	DataDir     string // "" is a temporary folder

	AdminToken      string
	StorefrontToken string
	ViewerToken     string

	Partitions      int
	FlushSize       int           // claims
	FlushInterval   time.Duration // whichever comes first
	IdleEvict       time.Duration
	Durability      lua.Durability
	Groups          []string
	ShutdownTimeout time.Duration
	UserRate        float64 // claims a second, per user and process; 0 is no limit
	Name            string  // of this process among its group's consumers
	LogLevel        string
	LogFormat       string

	// Unknown are variables with our prefix that are no setting: a typing mistake, or an orchestrator's own
	// (Kubernetes sets DIBS_SERVICE_HOST for a service called dibs), so they are for a warning, not a refusal.
	Unknown []string

	sources []Source
}

// fromDefault is the Source of a setting that nobody set.
const fromDefault = "default"

// Source tells where a setting's value comes from, for `dibs config`.
type Source struct {
	Variable string
	Value    string // masked if it is a secret
	From     string // default, environment, flag
	Meaning  string
}

// Sources lists every setting in force, in the order of the documentation.
func (c *Config) Sources() []Source { return c.sources }

// Given tells whether a setting comes from outside, by its variable.
func (c *Config) Given(variable string) bool {
	return slices.ContainsFunc(c.sources, func(s Source) bool { return s.Variable == variable && s.From != fromDefault })
}

// Embedded tells whether both servers are built in.
func (c *Config) Embedded() bool { return c.RedisURL == "" && c.MySQLDSN == "" }

// setting is one line of the table of settings.
type setting struct {
	key      string // of the flag; the variable is Prefix + upper case with underscores
	fallback string
	meaning  string
	secret   bool
	absent   string // what the listing shows for an empty value
	set      func(*Config, string) error
}

func (s setting) variable() string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(s.key, "-", "_"))
}

// AddFlags gives a command a flag for every setting.
func AddFlags(flags *pflag.FlagSet) {
	for _, s := range settings {
		flags.String(s.key, s.fallback, s.meaning+" ("+s.variable()+")")
	}
}

// Load reads the environment, as "NAME=value" lines, and the flags that were given. The error wraps ErrConfig.
func Load(environ []string, flags *pflag.FlagSet) (*Config, error) {
	c := &Config{}
	layers, err := c.readLayers(environ, flags)
	if err != nil {
		return nil, err
	}
	for _, s := range settings {
		value, from := s.fallback, fromDefault
		for _, layer := range layers {
			if layer.values.Exists(s.key) {
				value, from = layer.values.String(s.key), layer.name
			}
		}
		if err := s.set(c, value); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, s.variable(), err)
		}
		c.sources = append(c.sources, Source{s.variable(), s.shown(value), from, s.meaning})
	}
	if err := c.checkTokens(); err != nil {
		return nil, err
	}
	return c, nil
}

// checkTokens refuses a token that is set twice: who has the lesser one would be the greater.
func (c *Config) checkTokens() error {
	seen := map[string]string{"": ""}
	for _, t := range []struct{ variable, token string }{
		{"ADMIN_TOKEN", c.AdminToken}, {"STOREFRONT_TOKEN", c.StorefrontToken}, {"VIEWER_TOKEN", c.ViewerToken},
	} {
		if other := seen[t.token]; other != "" {
			return fmt.Errorf("%w: %s%s and %s%s: must differ, and are the same token", ErrConfig, Prefix, other, Prefix, t.variable)
		}
		if t.token != "" {
			seen[t.token] = t.variable
		}
	}
	return nil
}

func (s setting) shown(value string) string {
	if value == "" {
		return s.absent
	}
	if s.secret {
		return mask(s.key, value)
	}
	return value
}

// layer is one place settings come from, the stronger later.
type layer struct {
	name   string
	values *koanf.Koanf
}

func (c *Config) readLayers(environ []string, flags *pflag.FlagSet) ([]layer, error) {
	known := make(map[string]any, len(settings))
	for _, s := range settings {
		known[s.key] = s.fallback
	}
	base, fromEnv, fromFlags := koanf.New("."), koanf.New("."), koanf.New(".")
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
				return "", nil // an empty variable is one that is not set
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

// BooksDSN is the database of the finance service.
func (c *Config) BooksDSN() string {
	if c.FinanceDSN != "" {
		return c.FinanceDSN
	}
	return c.MySQLDSN
}

// CheckFinance refuses a finance service without servers: it needs Redis and its own database, and no other.
func (c *Config) CheckFinance() error {
	switch {
	case c.RedisURL == "":
		return fmt.Errorf("%w: %sREDIS_URL: is not set; the finance service needs the Redis that the API writes to", ErrConfig, Prefix)
	case c.BooksDSN() == "":
		return fmt.Errorf("%w: %sFINANCE_DSN: is not set, and neither is %sMYSQL_DSN: the books need a database", ErrConfig, Prefix, Prefix)
	}
	return nil
}

// CheckServers refuses one server without the other. Commands that need both call it; `dibs migrate` needs MySQL alone.
func (c *Config) CheckServers() error {
	if (c.RedisURL == "") != (c.MySQLDSN == "") {
		return fmt.Errorf("%w: %sREDIS_URL and %sMYSQL_DSN go together: set both for real servers, neither for embedded ones",
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
