package lab_test

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/proof/lab"
	"dibs/proof/trials"
)

// rounds makes a strategy's rounds of rates.
func rounds(rates ...float64) []lab.Round {
	var all []lab.Round
	for _, rate := range rates {
		all = append(all, lab.Round{ClaimsPerSecond: rate})
	}
	return all
}

// sample is a report of three strategies: Dibs is three times, then twice, then ten times as fast as the second.
func sample() lab.Report {
	entry := func(name string) lab.Entry {
		r, _ := lab.StrategyNamed(name)
		return r
	}
	r := lab.Report{Workload: lab.Workload{}.WithDefaults(), At: time.Unix(1_800_000_000, 0).UTC()}
	naive := rounds(50, 50, 50)
	naive[1].SellOut = lab.SellOut{Oversold: 12, OverLimitUsers: 7, Failed: 2, Failure: "boom"}
	r.Results = []lab.Result{
		lab.ResultOf(entry("read-then-write"), naive, lab.Lock{}),
		lab.ResultOf(entry("lua-update"), rounds(1000, 1500, 300), lab.Lock{}),
		lab.ResultOf(entry("dibs-http"), rounds(3000, 3000, 3000), lab.Lock{}),
	}
	r.Compare()
	return r
}

func TestRatioIsTheMedianOfTheRounds(t *testing.T) {
	t.Parallel()
	r := sample()
	require.InDelta(t, 3, r.Results[1].DibsRatio, 1e-9)
	require.InDelta(t, 1000, r.Results[1].ClaimsPerSecond, 1e-9)
	require.Len(t, r.Lines, 1)
	require.False(t, r.Lines[0].Met, "3 is not 10")
}

func TestWorstRoundCounts(t *testing.T) {
	t.Parallel()
	r := sample()
	require.EqualValues(t, 12, r.Results[0].Oversold)
	require.EqualValues(t, 7, r.Results[0].OverLimitUsers)
	text := r.Table()
	require.Contains(t, text, "read, then write: 2 claims failed, the first with: boom")
	require.Contains(t, text, "3.00, target ≥ 10.0: missed")
}

func TestWithoutDibsThereAreNoRatios(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Results, r.Lines = r.Results[:2], nil
	r.Results[1].DibsRatio = 0
	r.Compare()
	require.Zero(t, r.Results[1].DibsRatio)
	require.Empty(t, r.Lines)
}

func TestPublishPutsFiguresBetweenTheMarkers(t *testing.T) {
	t.Parallel()
	docs := t.TempDir()
	file := filepath.Join(docs, "lab.md")
	require.NoError(t, os.WriteFile(file, []byte("before\n<!-- figures: mysql -->\nfigures of last year\n<!-- end: mysql -->\nafter\n"), 0o600))
	r := sample()
	require.NoError(t, r.Publish(docs, ""))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(text), "before\n"))
	require.True(t, strings.HasSuffix(string(text), "after\n"))
	require.NotContains(t, string(text), "last year")
	figures, err := os.ReadFile(filepath.Join(docs, "lab", "mysql.csv"))
	require.NoError(t, err)
	require.Equal(t, r.CSV(), string(figures))
	for _, name := range []string{"throughput.svg", "latency.svg", "sold.svg", "statements.svg", "redis.svg"} {
		require.Contains(t, string(text), "(lab/mysql-"+name+")")
		requireXML(t, filepath.Join(docs, "lab", "mysql-"+name))
	}
	require.ErrorIs(t, r.Publish(docs, "other"), lab.ErrMarkers)
}

func requireXML(t *testing.T, file string) {
	t.Helper()
	in, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, in.Close()) }()
	elements := 0
	for decoder := xml.NewDecoder(in); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok {
			elements++
			require.True(t, elements > 1 || start.Name.Local == "svg")
		}
	}
	require.Greater(t, elements, 10)
}

func TestWorkloadNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for flag, spoil := range map[string]func(*lab.Workload){
		"--users":       func(w *lab.Workload) { w.Users = -1 },
		"--units":       func(w *lab.Workload) { w.Units = 2_000_000 },
		"--per-user":    func(w *lab.Workload) { w.PerUser = -1 },
		"--connections": func(w *lab.Workload) { w.Connections = 1 },
		"--processes":   func(w *lab.Workload) { w.Processes = 65 },
		"--sql-pool":    func(w *lab.Workload) { w.SQLPool = 1 },
		"--rounds":      func(w *lab.Workload) { w.Rounds = 101 },
		"--duration":    func(w *lab.Workload) { w.Duration = time.Hour },
		"--warm-up":     func(w *lab.Workload) { w.WarmUp = -1 },
		"--patience":    func(w *lab.Workload) { w.Patience = 1 },
		"--retry-pause": func(w *lab.Workload) { w.RetryPause = 1 },
		"--strategies":  func(w *lab.Workload) { w.Strategies = []string{"luck"} },
		"cannot buy":    func(w *lab.Workload) { w.Users = 10 },
		"red-packet":    func(w *lab.Workload) { w.PerUser = 2 },
	} {
		w := lab.Workload{}.WithDefaults()
		require.NoError(t, w.Validate())
		spoil(&w)
		err := w.Validate()
		require.ErrorIs(t, err, lab.ErrConfig, flag)
		require.ErrorContains(t, err, flag)
	}
}

func TestCommandRefusesBadFlagsInOneLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--users", "0"}, {"--strategies", "luck"}, {"--rounds", "x"}, {"--no-such"}, {"--docs", "/nowhere"}, {"extra"}, {"--connections", "1"},
	} {
		var out, complaint strings.Builder
		code := trials.Run(t.Context(), cmd.Env{Args: append([]string{"lab"}, args...), Stdout: &out, Stderr: &complaint})
		require.Equal(t, cmd.ExitUsage, code, args)
		require.Empty(t, out.String(), args)
		require.Equal(t, 1, strings.Count(complaint.String(), "\n"), complaint.String())
	}
}

func TestCommandListsTheStrategies(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.Zero(t, trials.Run(t.Context(), cmd.Env{Args: []string{"lab", "--list"}, Stdout: &out, Stderr: &out}))
	for _, r := range lab.Strategies() {
		require.Contains(t, out.String(), r.Name)
		require.Contains(t, out.String(), r.Flaw)
	}
}

func TestWireReadsAnswersAndDialsAgain(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Idempotency-Key") == "last" {
			w.Header().Set("Connection", "close")
		}
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(append(body, r.URL.Path...))
	}))
	defer server.Close()
	wire, err := lab.NewWire(server.URL, 1)
	require.NoError(t, err)
	defer wire.Close()
	for _, key := range []string{"first", "last", "after"} {
		status, answer, err := wire.Post(t.Context(), "/path", key, []byte("body"))
		require.NoError(t, err)
		require.Equal(t, http.StatusTeapot, status)
		require.Equal(t, "body/path", string(answer))
	}
}

func TestWireRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/chunked" {
			w.(http.Flusher).Flush()
		}
		w.WriteHeader(http.StatusOK)
	}))
	defer server.Close()
	wire, err := lab.NewWire(server.URL, 1)
	require.NoError(t, err)
	defer wire.Close()
	_, _, err = wire.Post(t.Context(), "/chunked", "key", []byte("{}"))
	require.ErrorContains(t, err, "its length is -1")
	status, answer, err := wire.Post(t.Context(), "/plain", "key", []byte("{}"))
	require.NoError(t, err, "on a new connection")
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, answer)
}
