// Package config reads the settings of a Dibs process: each setting is defined
// once, with its variable, flag, default and meaning. A flag overrides its
// variable in the environment.
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

	"github.com/dustin/go-humanize"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"dibs/internal/reread"
	"dibs/lua"
)

// ErrConfig is wrapped by every refusal of a setting; the message names its
// variable.
var ErrConfig = errors.New("config")

// Prefix starts the name of every variable.
const Prefix = "DIBS_"

// Refuse is the refusal of a setting, by its variable without Prefix. It wraps
// ErrConfig. What is wrong must not quote a value that may hold a secret, nor
// what a library says of one: see package address.
func Refuse(setting, wrong string, args ...any) error {
	return fmt.Errorf("%w: %s%s: %w", ErrConfig, Prefix, setting, fmt.Errorf(wrong, args...))
}

// RefuseIf is Refuse for an error that is a refusal, which is wrapped in it;
// any other stays as it is.
func RefuseIf(err, refusal error, setting string) error {
	if errors.Is(err, refusal) {
		return Refuse(setting, "%w", err)
	}
	return err
}

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

	TokensFile string

	JWKSFile, JWKSURL      string // one of them
	JWTIssuer, JWTAudience string
	JWKSMaxAge             time.Duration

	TLSCert, TLSKey string // files; "": plain HTTP
	Insecure        bool   // plain HTTP beyond loopback is meant
	HTTPConns       int    // at once
	HTTPIdleTimeout time.Duration
	TrustedProxies  []netip.Prefix
	CORSOrigins     []string
	AccessLog       bool

	Partitions int
	FlushSize  int // claims
	// a flush happens at FlushSize or FlushInterval, whichever comes first
	FlushInterval    time.Duration
	IdleEvict        time.Duration
	StreamKeep       time.Duration // entries stay so long in a claim stream
	StreamKeepBytes  int64         // unless it is larger
	Durability       lua.Durability
	Groups           []string
	URL, Token       string // of the API that a command asks, and what it shows there
	WebhooksFile     string // of the endpoints
	WebhooksPrivate  bool   // endpoints may have private addresses
	ReadAhead        bool   // finance and webhooks handle what MySQL does not have yet
	ShutdownTimeout  time.Duration
	UserRate         float64 // claims a second, per user and process; 0: no limit
	UserRateShared   bool    // the rate is of all processes
	SubjectSecret    string  // "": subjects are stored as they are
	MetricsCampaigns int     // that have series of their own
	Console          bool    // /console is served
	Name             string  // of this process among its group's consumers
	LogLevel         string
	LogFormat        string

	files   map[string]string // by the variable, without Prefix, of the setting that each holds
	sources []Source
}

// Where a setting comes from, beside environment and flag.
const (
	fromDefault = "default" // no one set it
	fromFile    = "file"    // which another setting names
)

// Source is one setting as `dibs config` lists it.
type Source struct {
	Variable string `json:"variable"`
	Value    string `json:"value"` // masked if it is a secret
	From     string `json:"from"`  // default, environment, flag, file
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
	// name of the flag; the variable is Prefix and the name in upper case with
	// underscores
	key      string
	fallback string
	meaning  string
	// what the listing shows of a value that may hold a secret; nil: all of it
	mask    func(string) string
	address bool // of a server or a listener: refused when it is set but empty
	late    bool // who uses its file reads it, as often as it changes
	// key of the setting whose value is in the file that this one names; ""
	// else
	of      string
	ifEmpty string // what the listing shows for an empty value
	set     func(*Config, string) error
}

func (s setting) variable() string { return Prefix + nameOf(s.key) }

// nameOf is the variable of a setting without Prefix.
func nameOf(key string) string { return strings.ToUpper(strings.ReplaceAll(key, "-", "_")) }

// withFiles adds, behind each setting that holds a secret or an address, the
// one that names a file with it.
func withFiles(table []setting) (all []setting) {
	for _, s := range table {
		all = append(all, s)
		if !s.hasFile() {
			continue
		}
		all = append(all, setting{
			key: fileOf(s.key), address: s.address, of: s.key, meaning: "file that holds the " + s.key + ", in its place",
			set: func(c *Config, path string) error {
				c.files[nameOf(s.key)] = path
				return nil
			},
		})
	}
	return all
}

// hasFile reports whether the value of a setting may be in a file that another
// setting names.
func (s setting) hasFile() bool { return s.of == "" && (s.mask != nil || s.address) }

func fileOf(key string) string { return key + "-file" }

// FileOf is the file that holds the value of a setting, by its variable without
// Prefix; "" is none.
func (c *Config) FileOf(name string) string { return c.files[name] }

// masked stands for a secret.
const masked = "****"

func hidden(string) string { return masked }

// AddFlags adds a flag for every setting to a command that has none of that
// name.
func AddFlags(flags *pflag.FlagSet) {
	for _, s := range settings {
		if flags.Lookup(s.key) != nil { // the command has one of its own, as bench has --url
			continue
		}
		flags.String(s.key, s.fallback, s.meaning+" ("+s.variable()+")")
		// fails for a flag that is not there
		_ = flags.SetAnnotation(s.key, settingAnnotation, []string{s.variable()})
	}
}

// settingAnnotation marks the flags that AddFlags makes.
const settingAnnotation = "dibs-setting"

// IsSetting reports whether a flag is a setting, which every command has.
func IsSetting(f *pflag.Flag) bool { return f.Annotations[settingAnnotation] != nil }

// Load reads the environment, as "NAME=value" lines, the flags that were set,
// and the files that either names. Its error wraps ErrConfig.
func Load(environ []string, flags *pflag.FlagSet) (*Config, error) {
	if err := checkNames(environ); err != nil {
		return nil, err
	}
	layers, err := readLayers(environ, flags)
	if err != nil {
		return nil, err
	}
	c := &Config{files: make(map[string]string)}
	for _, s := range settings {
		if err := c.load(s, layers); err != nil {
			return nil, err
		}
	}
	if err := c.checkTokens(); err != nil {
		return nil, err
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, Refuse("TLS_CERT", "goes with %sTLS_KEY: a certificate needs its key", Prefix)
	}
	return c, nil
}

// load sets one setting.
func (c *Config) load(s setting, layers []layer) error {
	value, from := find(s.key, s.fallback, layers)
	if from != fromDefault && value == "" && s.address {
		return Refuse(nameOf(s.key), "is set, but to nothing: give it a value, or don't set it")
	}
	if path, _ := find(fileOf(s.key), "", layers); path != "" && s.hasFile() {
		if from != fromDefault && value != "" {
			return Refuse(nameOf(fileOf(s.key)), "goes without %s: one of them has the value", s.variable())
		}
		from = fromFile
		if !s.late {
			text, err := readFile(path)
			if err != nil {
				return Refuse(nameOf(fileOf(s.key)), "%w", err)
			}
			value = text
		}
	}
	if err := s.set(c, value); err != nil {
		return Refuse(nameOf(s.key), "%w", err)
	}
	shown := s.shown(value)
	if from == fromFile && s.late {
		shown = masked
	}
	c.sources = append(c.sources, Source{Variable: s.variable(), Value: shown, From: from, Meaning: s.meaning})
	return nil
}

// readFile reads the value of a setting.
func readFile(path string) (string, error) {
	text, err := reread.Text(path)
	if err == nil && text == "" {
		err = fmt.Errorf("%s is empty", path)
	}
	return text, err //nolint:wrapcheck // it names the path
}

// find is the value of a setting, and where it comes from. A later layer
// overrides an earlier one. Line breaks at its end are those of a secret that
// was made by echo, as of a file.
func find(key, fallback string, layers []layer) (value, from string) {
	value = fallback
	from = fromDefault
	for _, layer := range layers {
		if layer.values.Exists(key) {
			value = strings.TrimRight(layer.values.String(key), "\r\n")
			from = layer.name
		}
	}
	return value, from
}

// checkTokens refuses one token for two roles: its holder would have the
// greater role without anyone meaning it.
func (c *Config) checkTokens() error {
	seen := map[string]string{"": ""}
	for _, t := range []struct{ variable, token string }{
		{"ADMIN_TOKEN", c.AdminToken}, {"STOREFRONT_TOKEN", c.StorefrontToken}, {"VIEWER_TOKEN", c.ViewerToken},
	} {
		if other := seen[t.token]; other != "" {
			return Refuse(t.variable, "is the same token as %s%s: each role needs a token of its own", Prefix, other)
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
	if s.mask != nil {
		return s.mask(value)
	}
	return value
}

// layer is one place where settings come from. A later layer overrides an
// earlier one.
type layer struct {
	name   string
	values *koanf.Koanf
}

func readLayers(environ []string, flags *pflag.FlagSet) ([]layer, error) {
	fromEnv := koanf.New(".")
	fromFlags := koanf.New(".")
	err := fromEnv.Load(env.Provider(".", env.Opt{
		Prefix:      Prefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			key := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, Prefix), "_", "-"))
			if value == "" && !isAddress(key) {
				return "", nil // it counts as not set
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

func isAddress(key string) bool {
	return slices.ContainsFunc(settings, func(s setting) bool { return s.key == key && s.address })
}

// BooksDSN returns the DSN of the finance service's database.
func (c *Config) BooksDSN() string {
	if c.FinanceDSN != "" {
		return c.FinanceDSN
	}
	return c.MySQLDSN
}

// CheckFinance refuses settings that lack what the finance service needs: Redis
// and a database.
func (c *Config) CheckFinance() error {
	switch {
	case c.RedisURL == "":
		return Refuse("REDIS_URL", "is not set: the finance service needs the Redis that the API writes to")
	case c.BooksDSN() == "":
		return Refuse("FINANCE_DSN", "is not set, nor is %sMYSQL_DSN: the finance service needs a database", Prefix)
	}
	return nil
}

// CheckServers refuses one server without the other. Commands that need both
// servers call it.
func (c *Config) CheckServers() error {
	if (c.RedisURL == "") != (c.MySQLDSN == "") {
		return Refuse("REDIS_URL", "goes with %sMYSQL_DSN: set both for real servers, or neither for the embedded ones", Prefix)
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
	return func(c *Config, value string) error {
		switch strings.ToLower(value) {
		case "1", "true":
			*field(c) = true
		case "0", "false":
			*field(c) = false
		default:
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

// byteSize reads a number of bytes, such as 512MiB.
func byteSize(field func(*Config) *int64) func(*Config, string) error {
	return func(c *Config, text string) error {
		n, err := humanize.ParseBytes(text)
		if err != nil || n > math.MaxInt64 {
			return errors.New("must be a number of bytes, such as 512MiB or 1GiB")
		}
		*field(c) = int64(n)
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
