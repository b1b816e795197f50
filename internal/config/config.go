// Package config reads a process' settings. Each setting is defined once,
// with its variable, flag, default and meaning. A flag overrides its
// environment variable.
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

// ErrConfig is wrapped by every refusal of a setting. The message names its
// variable.
var ErrConfig = errors.New("config")

// Prefix begins every variable.
const Prefix = "DIBS_"

// Refuse refuses a setting, by its variable without Prefix. It wraps
// ErrConfig. wrong must not quote a value that may contain a secret, nor a
// library's message about one: see package address.
func Refuse(setting, wrong string, args ...any) error {
	return fmt.Errorf("%w: %s%s: %w", ErrConfig, Prefix, setting, fmt.Errorf(wrong, args...))
}

// RefuseIf wraps err in Refuse if it is refusal. Any other error stays as
// it is.
func RefuseIf(err, refusal error, setting string) error {
	if errors.Is(err, refusal) {
		return Refuse(setting, "%w", err)
	}
	return err
}

// Config is the current settings.
type Config struct {
	HTTPAddr    string
	MetricsAddr string // of consumer, syncer and finance; "": none
	ProbeAddr   string // only for probes; "": none
	RedisURL    string // "": embedded
	MySQLDSN    string // "": embedded SQLite
	MySQLConns  int    // most connections of this process
	FinanceDSN  string // "": MySQLDSN
	DataDir     string // "": a temporary folder

	AdminToken      string
	StorefrontToken string
	ViewerToken     string

	TokensFile string

	JWKSFile, JWKSURL      string // set only one
	JWTIssuer, JWTAudience string
	JWKSMaxAge             time.Duration

	TLSCert, TLSKey string // files; "": plain HTTP
	Insecure        bool   // plain HTTP beyond loopback is allowed
	HTTPConns       int    // concurrent
	HTTPIdleTimeout time.Duration
	TrustedProxies  []netip.Prefix
	CORSOrigins     []string
	AccessLog       bool

	Partitions int
	FlushSize  int // claims
	// a flush happens at FlushSize or FlushInterval, whichever is first
	FlushInterval    time.Duration
	IdleEvict        time.Duration
	StreamKeep       time.Duration // least age of trimmed entries
	StreamKeepBytes  int64         // unless the stream is larger
	Durability       lua.Durability
	Groups           []string
	URL, Token       string // the API that commands call, and the token they send
	WebhooksFile     string // of the endpoints
	WebhooksPrivate  bool   // endpoints may have private addresses
	ReadAhead        bool   // finance and webhooks handle events before MySQL has them
	ShutdownTimeout  time.Duration
	UserRate         float64 // claims a second, per user and process; 0: no limit
	UserRateShared   bool    // the rate is across all processes
	SubjectSecret    string  // "": subjects are stored unchanged
	MetricsCampaigns int     // with their own series
	Console          bool    // /console is served
	Name             string  // of this process among its group's consumers
	LogLevel         string
	LogFormat        string

	files   map[string]string // path by the variable, without Prefix, of the setting in that file
	sources []Source
}

// Sources of a setting beside environment and flag.
const (
	fromDefault = "default" // not set
	fromFile    = "file"    // named by another setting
)

// Source is one setting in `dibs config`.
type Source struct {
	Variable string `json:"variable"`
	Value    string `json:"value"` // masked if it is a secret
	From     string `json:"from"`  // default, environment, flag or file
	Meaning  string `json:"meaning"`
}

// Sources lists all settings, in the documentation's order.
func (c *Config) Sources() []Source { return c.sources }

// Given reports whether a setting, by its variable, was set.
func (c *Config) Given(variable string) bool {
	return slices.ContainsFunc(c.sources, func(s Source) bool { return s.Variable == variable && s.From != fromDefault })
}

// Embedded reports whether both servers are embedded.
func (c *Config) Embedded() bool { return c.RedisURL == "" && c.MySQLDSN == "" }

type setting struct {
	// name of the flag; the variable is Prefix and this name in upper case
	// with underscores
	key      string
	fallback string
	meaning  string
	// displays a value that may contain a secret; nil: unchanged
	mask    func(string) string
	address bool // of a server or a listener: refused if set but empty
	late    bool // its user reads the file, whenever it changes
	// key of the setting whose value is in the file that this one names;
	// else ""
	of      string
	ifEmpty string // display of an empty value
	set     func(*Config, string) error
}

func (s setting) variable() string { return Prefix + nameOf(s.key) }

// nameOf is a setting's variable without Prefix.
func nameOf(key string) string { return strings.ToUpper(strings.ReplaceAll(key, "-", "_")) }

// withFiles adds, after each setting with a secret or an address, one that
// names a file with its value.
func withFiles(table []setting) (all []setting) {
	for _, s := range table {
		all = append(all, s)
		if !s.hasFile() {
			continue
		}
		all = append(all, setting{
			key: fileOf(s.key), address: s.address, of: s.key, meaning: "file that holds the " + s.key + ", instead of it",
			set: func(c *Config, path string) error {
				c.files[nameOf(s.key)] = path
				return nil
			},
		})
	}
	return all
}

// hasFile reports whether a setting's value may be in a file that another
// setting names.
func (s setting) hasFile() bool { return s.of == "" && (s.mask != nil || s.address) }

func fileOf(key string) string { return key + "-file" }

// FileOf is the file with a setting's value, by its variable without
// Prefix; "" is none.
func (c *Config) FileOf(name string) string { return c.files[name] }

const masked = "****"

func hidden(string) string { return masked }

// AddFlags adds a flag for every setting.
func AddFlags(flags *pflag.FlagSet) {
	for _, s := range settings {
		flags.String(s.key, s.fallback, s.meaning+" ("+s.variable()+")")
		// fails for a missing flag
		_ = flags.SetAnnotation(s.key, settingAnnotation, []string{s.variable()})
	}
}

const settingAnnotation = "dibs-setting"

// IsSetting reports whether a flag is a setting.
func IsSetting(f *pflag.Flag) bool { return f.Annotations[settingAnnotation] != nil }

// Load reads the environment, as "NAME=value" lines, the flags that were
// set, and the files that they name. Its error wraps ErrConfig.
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

// TokenOfAdmin is the admin's token, for a command that sends it. Roles read
// the file that has it whenever it changes.
func (c *Config) TokenOfAdmin() (string, error) {
	file := c.FileOf("ADMIN_TOKEN")
	if file == "" {
		return c.AdminToken, nil
	}
	text, err := readFile(file)
	if err != nil {
		return "", Refuse("ADMIN_TOKEN_FILE", "%w", err)
	}
	return text, nil
}

func readFile(path string) (string, error) {
	text, err := reread.Text(path)
	if err == nil && text == "" {
		err = fmt.Errorf("%s is empty", path)
	}
	return text, err //nolint:wrapcheck // it names the path
}

// find is a setting's value and source. A later layer overrides an earlier
// one. Trailing line breaks are removed, as from files: a secret made by
// echo has one.
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

// checkTokens refuses one token for two roles: its holder would
// unintentionally have the greater one.
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

// layer is one source of settings. A later layer overrides an earlier one.
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
				return "", nil // counts as not set
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

// CheckFinance refuses settings without the finance service's needs: Redis
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

// CheckServers refuses one server without the other, for commands that need
// both.
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

func rate(field func(*Config) *float64, most float64) func(*Config, string) error {
	return func(c *Config, value string) error {
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(f) || f < 0 || f > most {
			return fmt.Errorf("must be a number from 0 to %.0f, not %q", most, value)
		}
		*field(c) = f
		return nil
	}
}
