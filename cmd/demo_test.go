package cmd_test

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
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
	demo := launch(t, nil, "demo", "--users", "300", "--stock", "500", "--per-user", "3", "--connections", "40", "--keep-running")
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
	require.Contains(t, out, "\nthe books agree\n")
	require.Contains(t, out, "SQLite", "it says what it ran on")
}

func TestDemoOfSeveralShardsShowsThem(t *testing.T) {
	t.Parallel()
	out := requireOK(t, run(t, nil, "demo", "--users", "400", "--stock", "201", "--connections", "40", "--shards", "4"))
	require.Equal(t, []string{"201", "201", "201"}, outcome(t, out, "units taken"))
	require.Equal(t, []string{"0", "0"}, outcome(t, out, "units left"))
	var claimed int
	partitions := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\W*(\d)\W+(\d)\W+(\d+)\W+(\d+)\W+0\W+(\d+)\W*$`).FindAllStringSubmatch(out, -1) {
		n, err := strconv.Atoi(row[4])
		require.NoError(t, err)
		require.Equal(t, row[3], row[4], "all that it has on loan is claimed")
		claimed += n
		partitions[row[2]] = true
	}
	require.Equal(t, 201, claimed, out)
	require.Len(t, partitions, 4, out)
	require.Contains(t, out, "units between them")
	require.True(t, strings.HasSuffix(out, "\nthe books agree\n"), out)
}

// Two users share a device.
func TestDemoOnRealServersLeavesItsClaimsThere(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	out := requireOK(t, run(t, s.with("DIBS_ADMIN_TOKEN="+secret), "demo", "--users", "150", "--stock", "100", "--connections", "20", "--limit", "device:day:1"))
	require.Contains(t, out, "the books agree")
	require.NotEmpty(t, outcome(t, out, "refused: limit"))
	require.EqualValues(t, 75, s.number("SELECT COUNT(*) FROM claims"))
	require.EqualValues(t, 25, s.number("SELECT remaining FROM campaigns"))
	requireOK(t, run(t, s.environ, "reconcile"))
	require.NotContains(t, out, secret)
}

// meddler claims a unit of the demo's campaign unknown to the crowd,
// as soon as the address is printed.
type meddler struct {
	testenv.Buffer

	t    *testing.T
	once sync.Once
	done sync.WaitGroup
}

func (m *meddler) Write(p []byte) (int, error) {
	n, err := m.Buffer.Write(p)
	if where := regexp.MustCompile(`campaign (\S+) at (http://\S+):`).FindStringSubmatch(m.String()); where != nil {
		m.once.Do(func() { m.done.Go(func() { m.claim(where[2] + "/v1/campaigns/" + where[1] + "/claims") }) })
	}
	return n, err
}

func (m *meddler) claim(url string) {
	for m.t.Context().Err() == nil {
		<-time.After(2 * time.Millisecond)
		res, err := callers.Post(url, "application/json", strings.NewReader(`{"user_id":"meddler"}`))
		if err != nil {
			return
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusCreated {
			return
		}
	}
}

// The control of the tests above: one claim that the crowd doesn't know.
func TestDemoFailsWhenTheBooksDiffer(t *testing.T) {
	t.Parallel()
	out, problems := &meddler{t: t}, &testenv.Buffer{}
	code := cmd.Run(t.Context(), cmd.Env{
		Args: []string{"demo", "--users", "200", "--stock", "5000", "--connections", "10"}, Stdout: out, Stderr: problems,
	})
	out.done.Wait()
	require.Equal(t, cmd.ExitDrift, code, out.String()+problems.String())
	require.Equal(t, []string{"200", "201", "201"}, outcome(t, out.String(), "claims accepted"))
	require.Contains(t, out.String(), "DIFFER")
	require.NotContains(t, out.String(), "the books agree")
	require.Regexp(t, `(?m)^dibs: .*200 and 201`, problems.String())
}

// The address and a sign-in link must be printed before the crowd comes. The
// crowd is slow, and the demo serves until it is interrupted.
func TestDemoToWatch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var out, problems testenv.Buffer
	started, code := time.Now(), make(chan int, 1)
	go func() {
		code <- cmd.Run(ctx, cmd.Env{Args: []string{"demo", "--console", "--last", "3s", "--users", "60", "--stock", "40"}, Stdout: &out, Stderr: &problems})
	}()
	printed := regexp.MustCompile(`watch it at (http://\S+)(/console/campaigns/demo-\S+)\n.* within 5 minutes: (http://\S+)\n.*the token (\S{16,})\n`)
	require.Eventually(t, func() bool { return printed.MatchString(out.String()) || len(code) > 0 }, within, 5*time.Millisecond, "%s%s", &out, &problems)
	found := printed.FindStringSubmatch(out.String())
	require.NotNil(t, found, "%s%s", &out, &problems)
	require.NotContains(t, out.String(), "claims accepted", "the crowd is still there")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(url string) *http.Response {
		res, err := client.Get(url)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res
	}
	require.Equal(t, http.StatusUnauthorized, get(found[1]+found[2]).StatusCode, "control: one has to sign in")
	require.Equal(t, "0; url="+found[2], get(found[3]).Header.Get("Refresh"))
	require.Equal(t, http.StatusOK, get(found[1]+found[2]).StatusCode)
	res, err := client.PostForm(found[1]+"/console/sign-in", map[string][]string{"token": {found[4]}})
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusSeeOther, res.StatusCode)

	require.Eventually(t, func() bool { return strings.Contains(out.String(), "still serving") || len(code) > 0 }, within, 5*time.Millisecond, "%s%s", &out, &problems)
	require.GreaterOrEqual(t, time.Since(started), 2*time.Second, "a rush to watch")
	require.Equal(t, []string{"40", "40", "40"}, outcome(t, out.String(), "claims accepted"))
	require.Equal(t, http.StatusOK, get(found[1]+found[2]).StatusCode, "it serves on")
	require.Empty(t, code)
	cancel()
	require.Equal(t, cmd.ExitOK, <-code, "%s%s", &out, &problems)
}
