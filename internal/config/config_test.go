package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"dibs/internal/config"
	"dibs/lua"
)

func load(t *testing.T, environ []string, args ...string) (*config.Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("dibs", pflag.ContinueOnError)
	config.AddFlags(flags)
	require.NoError(t, flags.Parse(args))
	return config.Load(environ, flags)
}

func TestAFlagWinsOverTheEnvironmentAndBothOverTheDefault(t *testing.T) {
	t.Parallel()
	environ := []string{"DIBS_PARTITIONS=3", "DIBS_FLUSH_SIZE=500", "OTHER=1", "DIBS_NAME="}
	c, err := load(t, environ, "--flush-size", "700")
	require.NoError(t, err)
	require.Equal(t, 3, c.Partitions)
	require.Equal(t, 700, c.FlushSize)
	require.NotEmpty(t, c.Name, "an empty variable is one that is not set")
	from := map[string]string{}
	for _, s := range c.Sources() {
		from[s.Variable] = s.From
	}
	require.Equal(t, "environment", from["DIBS_PARTITIONS"])
	require.Equal(t, "flag", from["DIBS_FLUSH_SIZE"])
	require.Equal(t, "default", from["DIBS_HTTP_ADDR"])
	require.True(t, c.Given("DIBS_FLUSH_SIZE"))
	require.False(t, c.Given("DIBS_HTTP_ADDR"))
	c, err = load(t, []string{"DIBS_PARTITIONS=1"})
	require.NoError(t, err)
	require.True(t, c.Given("DIBS_PARTITIONS"), "though it is the default's value")
}

func TestEveryRefusalNamesItsVariable(t *testing.T) {
	t.Parallel()
	for variable, values := range map[string][]string{
		"DIBS_PARTITIONS":        {"0", "-1", "257", "two", "1.5"},
		"DIBS_FLUSH_SIZE":        {"0", "10001", "1e3"},
		"DIBS_MYSQL_CONNS":       {"3", "1001", "many"},
		"DIBS_FLUSH_INTERVAL":    {"0s", "50", "2h"},
		"DIBS_IDLE_EVICT":        {"0", "-5m"},
		"DIBS_DURABILITY":        {"replica:1", "replica:", "slow", "fsync:", "FAST"},
		"DIBS_GROUPS":            {"finance", "syncer,..", "syncer,", "syncer,a b"},
		"DIBS_SHUTDOWN_TIMEOUT":  {"0s", "1h", "soon"},
		"DIBS_USER_RATE":         {"-1", "NaN", "Inf", "many", "1000001"},
		"DIBS_LOG_LEVEL":         {"loud"},
		"DIBS_INSECURE":          {"yes", "2", "t", "F", "on"},
		"DIBS_ACCESS_LOG":        {"on"},
		"DIBS_HTTP_CONNS":        {"0", "many"},
		"DIBS_HTTP_IDLE_TIMEOUT": {"0", "10", "25h"},
		"DIBS_TLS_CERT":          {"cert.pem"},
		"DIBS_JWKS_MAX_AGE":      {"0", "59s", "a day"},
		"DIBS_TRUSTED_PROXIES":   {"10.0.0.0/33", "proxy", "10.0.0.0/8;fd00::/8"},
		"DIBS_TLS_KEY":           {"key.pem"},
		"DIBS_LOG_FORMAT":        {"xml"},
		"DIBS_NAME":              {" ", "\t", "one\ntwo", strings.Repeat("n", 300)},
		"DIBS_ADMIN_TOKEN":       {"a b", "sec\nret", "\x00", "\u00a0"},
		"DIBS_VIEWER_TOKEN":      {"\x7f"},
	} {
		for _, value := range values {
			_, err := load(t, []string{variable + "=" + value})
			require.ErrorIs(t, err, config.ErrConfig, "%s=%s", variable, value)
			require.ErrorContains(t, err, variable, value)
		}
	}
}

func TestEveryDurabilityIsSetByItsWord(t *testing.T) {
	t.Parallel()
	for _, d := range []lua.Durability{lua.Fast, lua.Fsync, lua.Vouched, lua.MySQL} {
		c, err := load(t, []string{"DIBS_DURABILITY=" + d.String()})
		require.NoError(t, err)
		require.Equal(t, d, c.Durability)
	}
	_, err := load(t, []string{"DIBS_DURABILITY=replica:1"})
	require.ErrorContains(t, err, `"mysql"`, "what to take instead")
}

func TestTrustedProxiesAreNetworks(t *testing.T) {
	t.Parallel()
	c, err := load(t, []string{"DIBS_TRUSTED_PROXIES=10.1.2.3/8, fd00::/8,192.0.2.1,"})
	require.NoError(t, err)
	require.Equal(t, "[10.0.0.0/8 fd00::/8 192.0.2.1/32]", fmt.Sprint(c.TrustedProxies))
}

func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	c, err := load(t, []string{
		"DIBS_REDIS_URL=redis://me:hunter2@one:6379/0", "DIBS_MYSQL_DSN=dibs:hunter2@tcp(127.0.0.1:3306)/dibs", "DIBS_ADMIN_TOKEN=hunter2",
		"DIBS_FINANCE_DSN=books:hunter2@tcp(127.0.0.1:3306)/books",
		"DIBS_JWKS_URL=https://me:hunter2@id.example:8443/keys", "DIBS_JWT_ISSUER=i", "DIBS_JWT_AUDIENCE=a",
	})
	require.NoError(t, err)
	all := shown(c)
	require.Equal(t, "redis://me:****@one:6379/0", all["DIBS_REDIS_URL"])
	require.Equal(t, "dibs:****@tcp(127.0.0.1:3306)/dibs", all["DIBS_MYSQL_DSN"])
	require.Equal(t, "books:****@tcp(127.0.0.1:3306)/books", all["DIBS_FINANCE_DSN"])
	require.Equal(t, "****", all["DIBS_ADMIN_TOKEN"])
	require.Empty(t, all["DIBS_VIEWER_TOKEN"])
	require.Equal(t, "https://me:****@id.example:8443/keys", all["DIBS_JWKS_URL"])
	c, err = load(t, []string{"DIBS_MYSQL_DSN=me:hunter2", "DIBS_FINANCE_DSN=tcp(db:3306)/books"})
	require.NoError(t, err)
	require.Equal(t, "****", shown(c)["DIBS_MYSQL_DSN"], "a user and a password whose host is missing")
	require.Equal(t, "tcp(db:3306)/books", shown(c)["DIBS_FINANCE_DSN"])
}

func TestEveryPasswordOfARedisURLIsMasked(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://:hunter2@one":                                                       "redis://:****@one",
		"redis://one?username=me&p%61ssword=hunter2":                                 "redis://one?****",
		"redis://me:hunter2@one,you:hunter2@two:6380":                                "****",
		"redis://me:hunter2@one,redis://me:hunter2@two/?x=y,three":                   "redis://me:****@one,redis://me:****@two/?x=y,three",
		"redis+sentinel://me:hunter2@one:1,two:2/m/0?sentinel_password=hunter2&db=1": "redis+sentinel://me:****@one:1,two:2/m/0?****",
		"redis://me:hunter2 @one":                                                    "****",
		"redis://me:hun?ter2@one":                                                    "****",
		"redis://me:12/hunter2@one":                                                  "****",
	} {
		c, err := load(t, []string{"DIBS_REDIS_URL=" + url})
		require.NoError(t, err)
		require.Equal(t, want, shown(c)["DIBS_REDIS_URL"], url)
	}
}

func shown(c *config.Config) map[string]string {
	all := map[string]string{}
	for _, s := range c.Sources() {
		all[s.Variable] = s.Value
	}
	return all
}

func TestOneTokenForTwoIsRefused(t *testing.T) {
	t.Parallel()
	_, err := load(t, []string{"DIBS_ADMIN_TOKEN=hunter2", "DIBS_VIEWER_TOKEN=hunter2"})
	require.ErrorIs(t, err, config.ErrConfig)
	require.ErrorContains(t, err, "DIBS_ADMIN_TOKEN")
	require.ErrorContains(t, err, "DIBS_VIEWER_TOKEN")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestAVariableThatIsNoSettingIsRefusedAndTheRightOneNamed(t *testing.T) {
	t.Parallel()
	for misspelt, meant := range map[string]string{
		"DIBS_PARTITION": "DIBS_PARTITIONS", "DIBS_REDIS": "DIBS_REDIS_URL", "DIBS_MYSQL_URL": "DIBS_MYSQL_DSN", "DIBS_HTTP_ADDRESS": "DIBS_HTTP_ADDR",
		"DIBS_REDIS_URL_FIEL": "DIBS_REDIS_URL_FILE", "DIBS_TOKEN_FILES": "DIBS_TOKEN_FILE", "DIBS_ADMIN_TOKENS": "DIBS_ADMIN_TOKEN",
		"DIBS_PORT": "", "DIBS_SECRET_OF_MINE": "", "DIBS_": "", "DIBS_redis_url": "",
	} {
		_, err := load(t, []string{"DIBS_PARTITIONS=2", misspelt + "=hunter2"})
		require.ErrorIs(t, err, config.ErrConfig, misspelt)
		require.ErrorContains(t, err, misspelt+": ")
		require.NotContains(t, err.Error(), "hunter2")
		if meant != "" {
			require.ErrorContains(t, err, "did you mean "+meant+"?", misspelt)
		}
	}
	_, err := load(t, []string{"DIBS_ONE=1", "DIBS_TWO=2"})
	require.ErrorContains(t, err, "DIBS_ONE")
	require.ErrorContains(t, err, "DIBS_TWO")
}

// In every pod Kubernetes sets variables for each Service, including those
// whose names begin with dibs.
func TestVariablesOfKubernetesForAServiceArePassedOver(t *testing.T) {
	t.Parallel()
	var environ []string
	for _, service := range []string{"DIBS", "DIBS_API", "DIBS_REDIS_URL"} {
		environ = append(environ,
			service+"_SERVICE_HOST=10.0.0.1", service+"_SERVICE_PORT=8080", service+"_SERVICE_PORT_HTTP=8080", service+"_PORT=tcp://10.0.0.1:8080",
			service+"_PORT_8080_TCP=tcp://10.0.0.1:8080", service+"_PORT_8080_TCP_PROTO=tcp", service+"_PORT_8080_TCP_PORT=8080",
			service+"_PORT_8080_TCP_ADDR=10.0.0.1")
	}
	c, err := load(t, environ)
	require.NoError(t, err)
	require.True(t, c.Embedded())
	_, err = load(t, []string{"DIBS_HTTP_PORT=8080"})
	require.ErrorContains(t, err, "DIBS_HTTP_PORT")
}

// secretsAndAddresses are the settings that may be in files, each with a
// valid value.
var secretsAndAddresses = map[string]string{
	"DIBS_HTTP_ADDR": "127.0.0.1:1", "DIBS_METRICS_ADDR": "127.0.0.1:2", "DIBS_PROBE_ADDR": "127.0.0.1:3", "DIBS_REDIS_URL": "redis://u:hunter2@one",
	"DIBS_MYSQL_DSN": "u:hunter2@tcp(one)/dibs", "DIBS_FINANCE_DSN": "u:hunter2@tcp(one)/books", "DIBS_JWKS_URL": "https://u:hunter2@one/keys",
	"DIBS_URL": "http://one", "DIBS_TOKEN": "hunter2", "DIBS_SUBJECT_SECRET": "hunter2",
	"DIBS_ADMIN_TOKEN": "hunter2", "DIBS_STOREFRONT_TOKEN": "hunter2", "DIBS_VIEWER_TOKEN": "hunter2",
}

func TestEverySecretAndAddressMayBeInAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	for variable, value := range secretsAndAddresses {
		require.NoError(t, os.WriteFile(file, []byte("\ufeff"+value+"\r\n"), 0o600))
		direct, err := load(t, []string{variable + "=" + value})
		require.NoError(t, err)
		flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, "DIBS_")), "_", "-") + "-file"
		for _, load := range []func() (*config.Config, error){
			func() (*config.Config, error) { return load(t, []string{variable + "_FILE=" + file}) },
			func() (*config.Config, error) { return load(t, nil, flag, file) },
		} {
			c, err := load()
			require.NoError(t, err, variable)
			require.Equal(t, file, c.FileOf(strings.TrimPrefix(variable, "DIBS_")))
			require.Equal(t, shown(direct)[variable], shown(c)[variable])
			require.True(t, c.Given(variable))
			require.Equal(t, file, shown(c)[variable+"_FILE"])
		}
		_, err = load(t, []string{variable + "=" + value}, flag, file)
		require.ErrorIs(t, err, config.ErrConfig)
		require.ErrorContains(t, err, variable+"_FILE: goes without "+variable+":")
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestASetButEmptyAddressIsRefusedAndSoIsAnEmptyFile(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\ufeff\n"), 0o600))
	for variable := range secretsAndAddresses {
		// the users of these tokens read their files
		late := strings.HasSuffix(variable, "_TOKEN") && variable != "DIBS_TOKEN"
		if !late {
			_, err := load(t, []string{variable + "_FILE=" + empty})
			require.ErrorContains(t, err, variable+"_FILE: "+empty+" is empty")
			_, err = load(t, []string{variable + "_FILE=/no/such"})
			require.ErrorContains(t, err, variable+"_FILE: open /no/such")
		}
		if strings.HasSuffix(variable, "TOKEN") || strings.HasSuffix(variable, "SECRET") {
			continue
		}
		for _, empty := range []string{variable, variable + "_FILE"} {
			_, err := load(t, []string{empty + "="})
			require.ErrorIs(t, err, config.ErrConfig)
			require.ErrorContains(t, err, empty+": is set, but to nothing")
			_, err = load(t, nil, "--"+strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(empty, "DIBS_")), "_", "-"), "")
			require.ErrorContains(t, err, empty+": is set, but to nothing")
		}
	}
}

func TestTheFinanceServiceNeedsRedisAndItsOwnDatabase(t *testing.T) {
	t.Parallel()
	const redis, mysql, books = "DIBS_REDIS_URL=redis://127.0.0.1:6379", "DIBS_MYSQL_DSN=root@tcp(127.0.0.1:3306)/dibs", "DIBS_FINANCE_DSN=root@tcp(127.0.0.1:3306)/books"
	for _, environ := range [][]string{{redis, mysql}, {redis, mysql, books}, {redis, books}} {
		c, err := load(t, environ)
		require.NoError(t, err)
		require.NoError(t, c.CheckFinance())
		require.True(t, strings.HasSuffix(environ[len(environ)-1], "_DSN="+c.BooksDSN()), "the last that is given")
	}
	for variable, environ := range map[string][]string{"DIBS_REDIS_URL": {mysql, books}, "DIBS_FINANCE_DSN": {redis}} {
		c, err := load(t, environ)
		require.NoError(t, err)
		require.ErrorIs(t, c.CheckFinance(), config.ErrConfig)
		require.ErrorContains(t, c.CheckFinance(), variable)
	}
}

// kubectl and echo add line breaks to secrets.
func TestLoad_LineBreaksBehindAValue(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n", "\r\n", "\n\n"} {
		c, err := config.Load([]string{
			"DIBS_REDIS_URL=redis://h:6379/0" + end, "DIBS_MYSQL_DSN=u:p@tcp(h)/dibs" + end, "DIBS_ADMIN_TOKEN=secret" + end, "DIBS_PARTITIONS=4" + end,
		}, nil)
		require.NoError(t, err)
		require.Equal(t, []any{"redis://h:6379/0", "u:p@tcp(h)/dibs", "secret", 4}, []any{c.RedisURL, c.MySQLDSN, c.AdminToken, c.Partitions})
	}
	_, err := config.Load([]string{"DIBS_REDIS_URL=\n"}, nil)
	require.ErrorContains(t, err, "DIBS_REDIS_URL", "a set but empty address")
}
