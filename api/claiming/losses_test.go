package claiming_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

type losses struct {
	mu      sync.Mutex
	signals map[int]lua.Signals
	reports map[string]lua.Position
	err     error
	checks  int
}

func (l *losses) Signals(context.Context) map[int]lua.Signals {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checks++
	return l.signals
}

func (l *losses) Report(_ context.Context, seen map[string]lua.Position) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		maps.Copy(l.reports, seen)
	}
	return l.err
}

func (l *losses) set(now lua.Signals, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signals, l.err = map[int]lua.Signals{0: now}, err
	clear(l.reports)
}

// seen is how often the signals were asked for, and what was reported.
func (l *losses) seen() (checks int, reports map[string]lua.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checks, maps.Clone(l.reports)
}

func (l *losses) awaitChecks(t *testing.T, more int) {
	t.Helper()
	before, _ := l.seen()
	require.Eventually(t, func() bool { checks, _ := l.seen(); return checks >= before+more }, time.Minute, time.Millisecond)
}

// Reports must not need another claim, and must be retried until MySQL has
// them. Otherwise claims that only this process answered could be sold again.
func TestLosses_AProcessReportsWhatItAnsweredWithoutAnotherClaim(t *testing.T) {
	t.Parallel()
	scripts, err := lua.New(testenv.Redis(t).Client(), lua.Options{})
	require.NoError(t, err)
	fake := apitest.NewFake()
	fake.Put(models.Campaign{ID: "spring", Total: 100, Version: 1})
	fake.Put(models.Campaign{ID: "quiet", Total: 100, Version: 1})
	d := &apitest.Definitions{Fake: fake, Scripts: scripts, Loaded: map[string]bool{}}
	l := &losses{reports: make(map[string]lua.Position)}
	l.set(lua.Signals{}, nil)
	s := realServer(t, d, func(deps *api.Deps) { deps.Losses = l })
	ctx, stop := context.WithCancel(t.Context())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	claim := func(user string) {
		h := apitest.AtHome(s.Handler())
		apitest.Answered(t, http.StatusCreated, h, http.MethodPost, "/v1/campaigns/spring/claims", `{"user_id":"`+user+`"}`)
	}
	claim("a")
	claim("b")
	l.awaitChecks(t, 1)
	_, reports := l.seen()
	require.Empty(t, reports, "nothing was lost")

	l.set(lua.Signals{Generation: 1}, errors.New("mysql is away"))
	l.awaitChecks(t, 2)
	_, reports = l.seen()
	require.Empty(t, reports)
	for _, now := range []lua.Signals{{Generation: 1}, {Generation: 1, Stops: 1}} {
		l.set(now, nil)
		require.Eventually(t, func() bool { _, reports = l.seen(); return len(reports) > 0 }, time.Minute, time.Millisecond)
		require.Equal(t, map[string]lua.Position{"spring": {Epoch: 1, Seq: 2, Units: 2}}, reports)
	}
	stop()
	require.NoError(t, <-served)
}
