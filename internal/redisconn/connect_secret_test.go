package redisconn_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"dibs/internal/redisconn"
)

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
