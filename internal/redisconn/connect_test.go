package redisconn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/internal/redisconn"
)

func optionsOf(t *testing.T, url string) *redis.Options {
	t.Helper()
	return connect(t, url).(interface{ Options() *redis.Options }).Options()
}

func TestConnectUsesTheOptionsOfTheURL(t *testing.T) {
	t.Parallel()
	for option, got := range map[string]func(o *redis.Options) any{
		"client_name=dibs":             func(o *redis.Options) any { return o.ClientName == "dibs" },
		"db=3":                         func(o *redis.Options) any { return o.DB == 3 },
		"read_timeout=9s":              func(o *redis.Options) any { return o.ReadTimeout == 9*time.Second },
		"pool_size=5":                  func(o *redis.Options) any { return o.PoolSize == 5 },
		"conn_max_lifetime_jitter=10s": func(o *redis.Options) any { return o.ConnMaxLifetimeJitter == 10*time.Second },
	} {
		url := "redis://127.0.0.1:1?" + option
		if option == "conn_max_lifetime_jitter=10s" {
			url += "&conn_max_lifetime=1h"
		}
		o := optionsOf(t, url)
		require.Equal(t, true, got(o), option)
		require.Zero(t, o.MaxRetries, "no option brings retries back")
		require.Equal(t, false, got(optionsOf(t, "redis://127.0.0.1:1")), "%s is no default", option)
	}
	require.True(t, optionsOf(t, "rediss://127.0.0.1:1?skip_verify=true").TLSConfig.InsecureSkipVerify)
	o := optionsOf(t, "redis://u:p%2Cw@127.0.0.1:1/2")
	require.Equal(t, []any{"u", "p,w", 2, "127.0.0.1:1"}, []any{o.Username, o.Password, o.DB, o.Addr})
	require.Equal(t, []time.Duration{2 * time.Second, 3 * time.Second, 3 * time.Second}, []time.Duration{o.DialTimeout, o.ReadTimeout, o.WriteTimeout})
}

func TestConnectTakesHostsOfACluster(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://u:pw@a:1,b:2,c:3?pool_size=5", "redis://u:pw@a:1?pool_size=5,b:2, c:3", "redis://u:pw@a:1,redis://b:2,redis://u:pw@c:3?pool_size=5",
	} {
		o := connect(t, url).(*redis.ClusterClient).Options()
		require.Equal(t, []string{"a:1", "b:2", "c:3"}, o.Addrs, url)
		require.Equal(t, []any{"u", "pw", 5, -1}, []any{o.Username, o.Password, o.PoolSize, o.MaxRetries}, url)
	}
}

func TestConnectTakesSentinels(t *testing.T) {
	t.Parallel()
	o := optionsOf(t, "redis+sentinel://u:pw@a:1,b:2/orders/3?pool_size=5&client_name=dibs&sentinel_username=s&sentinel_password=spw")
	require.Equal(t, []any{"u", "pw", 3, 5, "dibs", 0, "FailoverClient"},
		[]any{o.Username, o.Password, o.DB, o.PoolSize, o.ClientName, o.MaxRetries, o.Addr}, "no command is sent twice")
	require.Nil(t, o.TLSConfig)
	require.Equal(t, 3, optionsOf(t, "redis+sentinel://a:1/orders?db=3").DB)
	all := optionsOf(t, "redis+sentinel://a:1/orders?tls=all&skip_verify=true")
	require.True(t, all.TLSConfig.InsecureSkipVerify)
	require.Empty(t, all.TLSConfig.ServerName, "each server has its own")
	require.Nil(t, optionsOf(t, "redis+sentinel://a:1/orders?tls=nodes").TLSConfig, "the dialer has it, for the nodes alone")
}

func TestConnectRefusesByName(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"redis://a:1?max_retries=3":                 "none of these: client_name",
		"redis://a:1,b:2?route_randomly=true":       "none of these",
		"redis://a:1?pool_size=3&pool_size=4":       "pool_size is given twice",
		"redis://a:1?pool_size=-1":                  "pool_size must be at least 1",
		"redis://a:1?read_timeout=1s":               "read_timeout and write_timeout must be at least 3s",
		"redis://a:1?skip_verify=true":              "skip_verify",
		"redis://a:1?pool_size=3;max_retries=2":     "its query",
		"redis://a:1?pool_size=3,b:2?pool_size=4":   "behind one host",
		"redis://a:1,b:2/1":                         "database 0",
		"redis://a:1,rediss://b:2":                  "scheme",
		"redis://u:pw@a:1,u:other@b:2":              "user and password",
		"unix:///tmp/redis.sock":                    "redis://",
		"redis+sentinel://a:1":                      "names no master",
		"redis+sentinel://a:1/m?tls=yes":            "tls must be nodes or all",
		"redis+sentinel://a:1/m?skip_verify=true":   "skip_verify",
		"redis://u:secret@a:1/x":                    "database",
		"redis://u:secret@[::1:1":                   "bad redis url",
		"redis://u:secret@a:1?conn_max_idle_time=x": "conn_max_idle_time",
	} {
		_, err := redisconn.Connect(url)
		require.ErrorIs(t, err, redisconn.ErrURL, url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "secret", url)
	}
}

// Otherwise logs could contain parts of a password, whatever its
// characters and position in the URL.
func TestConnectQuotesNoPassword(t *testing.T) {
	t.Parallel()
	forms := []string{
		"redis://u:PW@one:6379/0", "rediss://:PW@one", "redis://u:PW@one:port", "redis://u:PW@one:1/x", "redis://u:PW", "redis://u:PW@one/0/1",
		"redis://u:PW@a:1,b:2", "redis://a:1,u:PW@b:2", "redis://u:PW@a:1,u:PW@b:2?pool_size=5", "redis://u:PW@a:1?pool_size=x", "redis://a?PW=1",
		"redis+sentinel://u:PW@a:1,b:2/m/0", "redis+sentinel://u:PW@a/m", "redis+sentinel://u:PW@a:1", "redis+sentinel://a:1/m?sentinel_password=PW",
		"redis+sentinel://a:1/m/PW", "redis://a?pool_size=PW", "redis://a/PW",
	}
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringMatching(`[QXZJKVWY]{2,4}`)
		special := rapid.SampledFrom(strings.Split("/ ? # @ : , % & = ; ( ) [ ] ' \" \\ + $ ! %2F %zz ://", " "))
		secret := letters.Draw(t, "a") + special.Draw(t, "b") + letters.Draw(t, "c") + special.Draw(t, "d") + letters.Draw(t, "e")
		url := strings.ReplaceAll(rapid.SampledFrom(forms).Draw(t, "form"), "PW", secret)
		err := redisconn.CheckURL(url)
		for i := 0; err != nil && i+4 <= len(secret); i++ {
			if strings.Contains(err.Error(), secret[i:i+4]) {
				t.Fatalf("%q: %s", url, err)
			}
		}
	})
}
