package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"

	"dibs/internal/address"
	"dibs/lua"
	"dibs/models"
)

// settings are all settings, in the documentation's order.
var settings = withFiles(table) //nolint:gochecknoglobals // a table that nothing writes to

// table is the settings without those that name another one's file. A new
// setting is a row here and a field of Config.
var table = []setting{
	{key: "http-addr", address: true, fallback: "127.0.0.1:8080", meaning: "listen address",
		set: text(func(c *Config) *string { return &c.HTTPAddr })},
	{key: "metrics-addr", address: true, meaning: "listen address for /metrics and /healthz of consumer, syncer and finance; not set: none",
		set: text(func(c *Config) *string { return &c.MetricsAddr })},
	{key: "probe-addr", address: true, meaning: "" +
		"listen address for /healthz and /readyz alone, plain HTTP, which no other caller can fill; not set: none",
		set: text(func(c *Config) *string { return &c.ProbeAddr })},
	{key: "redis-url", mask: address.MaskURL, address: true, ifEmpty: "embedded", meaning: "" +
		"redis:// or rediss:// URL, several comma-separated hosts are a cluster; " +
		"redis+sentinel://user:pw@host:port,host:port/master-name/db for Sentinel; not set: embedded",
		set: text(func(c *Config) *string { return &c.RedisURL })},
	{key: "mysql-dsn", mask: address.MaskDSN, address: true, ifEmpty: "embedded", meaning: "go-sql-driver DSN; not set: embedded SQLite",
		set: text(func(c *Config) *string { return &c.MySQLDSN })},
	{key: "mysql-conns", fallback: "16", meaning: "most connections of a process to MySQL",
		set: integer(func(c *Config) *int { return &c.MySQLConns }, 4, 1000)},
	{key: "finance-dsn", mask: address.MaskDSN, address: true, meaning: "" +
		"go-sql-driver DSN of the finance service's books; not set: as mysql-dsn",
		set: text(func(c *Config) *string { return &c.FinanceDSN })},
	{key: "data-dir", ifEmpty: "temporary", meaning: "folder of the embedded SQLite; empty: a temporary one, deleted at the end",
		set: text(func(c *Config) *string { return &c.DataDir })},
	{key: "admin-token", mask: hidden, late: true, meaning: "bearer token that may do all",
		set: token(func(c *Config) *string { return &c.AdminToken })},
	{key: "storefront-token", mask: hidden, late: true, meaning: "bearer token that may claim, redeem, release, " +
		"reopen, extend and read claims",
		set: token(func(c *Config) *string { return &c.StorefrontToken })},
	{key: "viewer-token", mask: hidden, late: true, meaning: "bearer token that may read",
		set: token(func(c *Config) *string { return &c.ViewerToken })},
	{key: "tokens-file", meaning: "" +
		"file of named tokens, a line each: name role sha256:<hex> [expires=RFC3339]; 'dibs token' makes one; read again when it changes",
		set: text(func(c *Config) *string { return &c.TokensFile })},
	{key: "jwks-file", meaning: "file of the public keys that end users' JWTs are signed with, a JWK Set; read again when it changes",
		set: text(func(c *Config) *string { return &c.JWKSFile })},
	{key: "jwks-url", mask: address.MaskURL, address: true, meaning: "https:// URL of these keys, instead of the file",
		set: text(func(c *Config) *string { return &c.JWKSURL })},
	{key: "jwks-max-age", fallback: "24h", meaning: "for how long the last keys are used while they can't be read again",
		set: duration(func(c *Config) *time.Duration { return &c.JWKSMaxAge }, time.Minute, 10000*time.Hour)},
	{key: "jwt-issuer", meaning: "what iss of a JWT must be",
		set: text(func(c *Config) *string { return &c.JWTIssuer })},
	{key: "jwt-audience", meaning: "what aud of a JWT must hold",
		set: text(func(c *Config) *string { return &c.JWTAudience })},
	{key: "tls-cert", meaning: "file of the certificate for HTTPS, PEM, with those that vouch for it; read again when it changes",
		set: text(func(c *Config) *string { return &c.TLSCert })},
	{key: "tls-key", meaning: "file of the certificate's key, PEM; read again when it changes",
		set: text(func(c *Config) *string { return &c.TLSKey })},
	{key: "insecure", fallback: "0", meaning: "1: listen beyond loopback without TLS, as behind a proxy that has it",
		set: boolean(func(c *Config) *bool { return &c.Insecure })},
	{key: "http-conns", fallback: "10000",
		meaning: "most connections at once to an address that this process listens on; more wait",
		set:     integer(func(c *Config) *int { return &c.HTTPConns }, 1, 1_000_000)},
	{key: "http-idle-timeout", fallback: "10m20s",
		meaning: "for how long a connection may wait for its next request: longer than a load balancer before it keeps one",
		set:     duration(func(c *Config) *time.Duration { return &c.HTTPIdleTimeout }, time.Second, 24*time.Hour)},
	{key: "cors-origins", meaning: "origins, comma-separated, whose pages may call the API from a browser, such as https://shop.example.com",
		set: origins},
	{key: "trusted-proxies", meaning: "" +
		"CIDRs, comma-separated, of the proxies whose X-Forwarded-For has a client's address, and X-Forwarded-Host the name that it asked for",
		set: networks},
	{key: "access-log", fallback: "0", meaning: "1: log a line for each request",
		set: boolean(func(c *Config) *bool { return &c.AccessLog })},
	{key: "partitions", fallback: "1", meaning: "claim streams; fixed once data exists",
		set: integer(func(c *Config) *int { return &c.Partitions }, 1, lua.PartitionsMax)},
	{key: "flush-size", fallback: "2000", meaning: "claims that make a flush",
		set: integer(func(c *Config) *int { return &c.FlushSize }, 1, 10000)},
	{key: "flush-interval", fallback: "50ms", meaning: "a flush happens at least this often while there is something to flush",
		set: duration(func(c *Config) *time.Duration { return &c.FlushInterval }, time.Millisecond, time.Minute)},
	{key: "idle-evict", fallback: "30m", meaning: "a campaign without a claim for this long, and fully synced, leaves Redis",
		set: duration(func(c *Config) *time.Duration { return &c.IdleEvict }, 100*time.Millisecond, 10000*time.Hour)},
	{key: "durability", fallback: "fast", meaning: "" +
		"a claim is answered once it is, fast: in Redis' memory; fsync: on Redis' disk; mysql: a row that MySQL has committed",
		set: durability},
	{key: "stream-keep", fallback: "1h", meaning: "" +
		"how old an entry of a claim stream is before it is trimmed, though MySQL and all groups have it: a MySQL restored to a point within" +
		" that time is filled again from the stream",
		set: duration(func(c *Config) *time.Duration { return &c.StreamKeep }, 0, 10000*time.Hour)},
	{key: "stream-keep-bytes", fallback: "1GiB", meaning: "size of a claim stream above which entries are trimmed " +
		"sooner; unread entries stay in any case",
		set: byteSize(func(c *Config) *int64 { return &c.StreamKeepBytes })},
	{key: "groups", fallback: models.GroupSyncer + ",finance",
		meaning: "consumer groups that a new deployment registers: unread events of a registered group are never trimmed",
		set:     groups},
	{key: "url", mask: address.MaskURL, address: true, fallback: "http://127.0.0.1:8080", meaning: "" +
		"of the API that commands such as groups ask",
		set: text(func(c *Config) *string { return &c.URL })},
	{key: "token", mask: hidden, meaning: "bearer token that these commands show",
		set: token(func(c *Config) *string { return &c.Token })},
	{key: "webhooks-file", meaning: "file of the webhooks' endpoints, JSON, see docs/webhooks.md; read again when it changes",
		set: text(func(c *Config) *string { return &c.WebhooksFile })},
	{key: "webhooks-private", fallback: "0", meaning: "1: webhooks may go to private addresses",
		set: boolean(func(c *Config) *bool { return &c.WebhooksPrivate })},
	{key: "read-ahead", fallback: "false", meaning: "finance and webhooks handle events that MySQL does not have yet",
		set: boolean(func(c *Config) *bool { return &c.ReadAhead })},
	{key: "shutdown-timeout", fallback: "15s", meaning: "how long a stop may take to finish and flush",
		set: duration(func(c *Config) *time.Duration { return &c.ShutdownTimeout }, time.Second, 10*time.Minute)},
	{key: "metrics-campaigns", fallback: "50", meaning: "" +
		"campaigns that have series of their own in /metrics of an API process, its busiest; 0: none",
		set: integer(func(c *Config) *int { return &c.MetricsCampaigns }, 0, 1000)},
	{key: "user-rate", fallback: "0", meaning: "" +
		"claims a second that one user may try at one process, repeats with the same Idempotency-Key among them; 0: no limit",
		set: rate(func(c *Config) *float64 { return &c.UserRate }, 1e6)}, // as api.Config
	{key: "user-rate-shared", fallback: "off", meaning: "" +
		"on or off: the user rate is of all API processes, which share it through Redis ten times a second",
		set: onOff(func(c *Config) *bool { return &c.UserRateShared })},
	{key: "console", fallback: "on", meaning: "on or off: /console, the operator's page, on the API's address",
		set: onOff(func(c *Config) *bool { return &c.Console })},
	{key: "subject-secret", mask: hidden, meaning: "" +
		"subjects of claims are stored as digests by this secret, so that e-mails and cards need not be;" +
		" the same for every API process, for ever; empty: as they are",
		set: text(func(c *Config) *string { return &c.SubjectSecret })},
	{key: "name", fallback: hostname(), meaning: "name of this process among the consumers of its group; keep it over restarts",
		set: name},
	{key: "log-level", fallback: "info", meaning: "debug, info, warn or error",
		set: oneOf(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},
	{key: "log-format", fallback: "text", meaning: "text or json",
		set: oneOf(func(c *Config) *string { return &c.LogFormat }, "text", "json")},
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "dibs"
	}
	return name
}

func onOff(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, value string) error {
		if value != "on" && value != "off" {
			return fmt.Errorf("must be on or off, not %q", value)
		}
		*field(c) = value == "on"
		return nil
	}
}

// name refuses a blank name: Redis keeps this process' unacknowledged
// entries under it.
func name(c *Config, value string) error {
	if strings.TrimSpace(value) == "" || models.CheckUserID(value) != nil {
		return fmt.Errorf("must be 1 to %d printable characters, not only blanks", models.UserIDLength)
	}
	c.Name = value
	return nil
}

// token refuses what an Authorization header can't carry.
func token(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, value string) error {
		if strings.ContainsFunc(value, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return errors.New("must not hold blanks or control characters: an Authorization header cannot carry them")
		}
		*field(c) = value
		return nil
	}
}

func origins(c *Config, value string) error {
	for text := range strings.SplitSeq(value, ",") {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		if err := address.CheckOrigin(text); err != nil {
			return fmt.Errorf("%w, separated by commas, not %q", err, value)
		}
		c.CORSOrigins = append(c.CORSOrigins, text)
	}
	return nil
}

func networks(c *Config, value string) error {
	for text := range strings.SplitSeq(value, ",") {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		network, err := netip.ParsePrefix(text)
		if ip, ipErr := netip.ParseAddr(text); err != nil && ipErr == nil {
			network, err = ip.Prefix(ip.BitLen())
		}
		if err != nil {
			return fmt.Errorf("must be CIDRs such as 10.0.0.0/8, separated by commas, not %q", value)
		}
		c.TrustedProxies = append(c.TrustedProxies, network.Masked())
	}
	return nil
}

func durability(c *Config, value string) (err error) {
	c.Durability, err = lua.ParseDurability(value)
	return err
}

var groupName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// groups refuses a list without models.GroupSyncer: events would be trimmed
// before MySQL has them.
func groups(c *Config, value string) error {
	syncer := false
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if !groupName.MatchString(name) || models.CheckSegment(name) != nil {
			return fmt.Errorf("must be names separated by commas, not %q", value)
		}
		syncer = syncer || name == models.GroupSyncer
		c.Groups = append(c.Groups, name)
	}
	if !syncer {
		return errors.New("must name the group syncer, which writes the claims into MySQL")
	}
	return nil
}
