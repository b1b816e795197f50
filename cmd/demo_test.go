package cmd_test

import (
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
)

// outcome reads a line of the demo's table: the figures of the crowd,
// Redis and the database.
func outcome(t *testing.T, out, what string) []string {
	t.Helper()
	row := regexp.MustCompile(`(?m)^` + what + ` {2,}(.*)$`).FindStringSubmatch(out)
	require.NotNil(t, row, "%s in\n%s", what, out)
	return strings.Fields(row[1])
}

// The printed request must work afterwards, and an interrupt is no failure.
func TestDemoSellsEverythingOnceAndShowsThreeAccounts(t *testing.T) {
	t.Parallel()
	demo := launch(t, nil, strings.Fields("demo --users 300 --stock 500 --per-user 3 --connections 40 --shards 4 --keep-running")...)
	var stock []string
	eventually(t, "it does not say where it serves", func() bool {
		stock = regexp.MustCompile(`curl -s (http://\S+/stock)`).FindStringSubmatch(demo.out.String())
		return stock != nil || demo.over()
	})
	require.NotNil(t, stock, demo.problems)
	var left struct{ Remaining, Claimed int64 }
	call(t, http.MethodGet, stock[1], "").into(t, &left)
	require.Equal(t, []int64{0, 500}, []int64{left.Remaining, left.Claimed})
	out := requireOK(t, demo.stop())
	require.Equal(t, []string{"500", "500", "500"}, outcome(t, out, "units taken"))
	require.Equal(t, []string{"0", "0"}, outcome(t, out, "units left"))
	accepted := outcome(t, out, "claims accepted")
	require.Len(t, accepted, 3)
	require.Equal(t, accepted[0], accepted[1])
	require.Equal(t, accepted[0], accepted[2])
	require.NotEmpty(t, outcome(t, out, "refused: sold_out"))
	require.Contains(t, out, "300 users on 40 connections, 500 units, up to 3 a user")
	require.Contains(t, out, "units between them", "its shards")
	require.Contains(t, out, "\nthe books agree\n")
}

// Two users share a device.
func TestDemoOnRealServersLeavesItsClaimsThere(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(secret), 0o600))
	out := requireOK(t, run(t, s.with("DIBS_ADMIN_TOKEN_FILE="+token), "demo", "--users", "150", "--stock", "100", "--connections", "20", "--limit", "device:day:1"))
	require.Contains(t, out, "the books agree")
	require.NotEmpty(t, outcome(t, out, "refused: limit"))
	require.EqualValues(t, 75, s.number("SELECT COUNT(*) FROM claims"))
	require.EqualValues(t, 25, s.number("SELECT remaining FROM campaigns"))
	requireOK(t, run(t, s.environ, "reconcile"))
	require.NotContains(t, out, secret)
}

// The control of the tests above: one claim that the crowd doesn't know.
func TestDemoFailsWhenTheBooksDiffer(t *testing.T) {
	t.Parallel()
	demo := launch(t, nil, "demo", "--users", "400", "--stock", "50000", "--connections", "1")
	printed := regexp.MustCompile(`campaign (\S+) at (http://\S+):`)
	eventually(t, "no claim gets in between", func() bool {
		at := printed.FindStringSubmatch(demo.out.String())
		return at != nil && call(t, http.MethodPost, at[2]+"/v1/campaigns/"+at[1]+"/claims", `{"user_id":"meddler"}`).status == http.StatusCreated
	})
	got := demo.wait()
	require.Equal(t, cmd.ExitDrift, got.code, got.stdout+got.stderr)
	require.Equal(t, []string{"400", "401", "401"}, outcome(t, got.stdout, "claims accepted"))
	require.Contains(t, got.stdout, "DIFFER")
	require.NotContains(t, got.stdout, "the books agree")
	require.Regexp(t, `(?m)^dibs: .*400 and 401`, got.stderr)
}

// The address and a sign-in link must be printed before the crowd comes. The
// crowd is slow, and the demo serves until it is interrupted.
func TestDemoToWatch(t *testing.T) {
	t.Parallel()
	started := time.Now()
	demo := launch(t, nil, "demo", "--console", "--last", "3s", "--users", "60", "--stock", "40")
	printed := regexp.MustCompile(`watch it at (http://\S+)(/console/campaigns/demo-\S+)\n.* within 5 minutes: (http://\S+)\n.*the token (\S{16,})\n`)
	eventually(t, "no link is printed", func() bool { return demo.over() || printed.MatchString(demo.out.String()) })
	found := printed.FindStringSubmatch(demo.out.String())
	require.NotNil(t, found, "%s%s", demo.out, demo.problems)
	require.NotContains(t, demo.out.String(), "claims accepted", "the crowd is still there")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	defer client.CloseIdleConnections()
	get := func(url string) *http.Response {
		res, err := client.Get(url)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res
	}
	require.Equal(t, http.StatusUnauthorized, get(found[1]+found[2]).StatusCode, "control: one has to sign in")
	require.Equal(t, "0; url="+found[2], get(found[3]).Header.Get("Refresh"))
	require.Equal(t, http.StatusOK, get(found[1]+found[2]).StatusCode)
	require.Equal(t, http.StatusOK, call(t, http.MethodGet, found[1]+"/v1/campaigns", "", "Authorization: Bearer "+found[4]).status)

	eventually(t, "it does not serve on", func() bool { return demo.over() || strings.Contains(demo.out.String(), "still serving") })
	require.GreaterOrEqual(t, time.Since(started), 2*time.Second, "a rush to watch")
	require.Equal(t, []string{"40", "40", "40"}, outcome(t, demo.out.String(), "claims accepted"))
	require.Equal(t, http.StatusOK, get(found[1]+found[2]).StatusCode, "it serves on")
	requireOK(t, demo.stop())
}
