package bench_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	watchConnections = 50
	watchersBeside   = 200
)

// benchWatchers loads the API alone, then beside 200 watchers:
// half watch the claimed campaign, half all campaigns.
func benchWatchers(b *testing.B, s *sheet) {
	r := newBroker(b)
	st := stores(b)[0]
	s.Facts = []string{r.version(b), st.version(b), wrkVersion(b)}
	program := buildDibs(b)
	settings := []string{"DIBS_REDIS_URL=" + r.server.URL(), "DIBS_MYSQL_DSN=" + st.dsn, "DIBS_HTTP_ADDR=127.0.0.1:0"}
	w := &whole{broker: r, store: st, span: fmt.Sprintf("%.0fs", max(1, span(10*time.Second).Seconds()))}
	w.api, w.consumer = startDibs(b, program, "api", settings...), startDibs(b, program, "consumer", settings...)
	alone, beside := "claims", fmt.Sprintf("claims beside %d watchers", watchersBeside)
	watching := fmt.Sprintf("%d watchers, no claims", watchersBeside)
	s.takeTurns([]func(){
		func() { w.acceptedOf(b, s, w.create(b), alone, watchConnections) },
		func() {
			id := w.create(b)
			crowd := w.watch(b, id)
			w.acceptedOf(b, s, id, beside, watchConnections)
			s.add(beside+": events", "/s a watcher", crowd.leave(b))
		},
		func() {
			crowd := w.watch(b, w.create(b))
			started, before, redis := time.Now(), w.api.cpu(b), r.usage(b)
			<-time.After(span(10 * time.Second))
			core := float64(time.Since(started)) / 100
			s.add(watching+": CPU of the API", "% of a core", float64(w.api.cpu(b)-before)/core)
			s.add(watching+": CPU of Redis", "% of a core", float64(r.usage(b).cpu-redis.cpu)/core)
			crowd.leave(b)
		},
	})
	s.ratio(b, beside+" / "+alone, beside, alone, 0.97)
	s.ratio(b, beside+" / "+alone+": CPU of the API", beside+": CPU of the API", alone+": CPU of the API", 0)
	s.note(fmt.Sprintf("`dibs api` and `dibs consumer` as built for production, %d connections; Redis, SQL server, wrk and those who watch share the cores with them.",
		watchConnections))
	s.note("Half of the watchers follow the campaign that is claimed from, half all campaigns; events are theirs of that campaign.")
}

// watchers read events until they leave.
type watchers struct {
	stop    context.CancelFunc
	done    sync.WaitGroup
	started time.Time
	events  atomic.Int64
	broken  atomic.Int64 // dropped watchers
}

// watch starts watchers, and returns when each has its first event.
func (w *whole) watch(b *testing.B, id string) *watchers {
	b.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	all := &watchers{stop: stop}
	b.Cleanup(stop)
	var first sync.WaitGroup
	for i := range watchersBeside {
		first.Add(1)
		path := []string{"/v1/watch", "/v1/campaigns/" + id + "/watch"}[i%2]
		all.done.Go(func() { all.follow(ctx, "http://"+w.api.addr+path, id, sync.OnceFunc(first.Done)) })
	}
	first.Wait()
	require.Zero(b, all.broken.Load())
	all.started = time.Now()
	all.events.Store(0)
	return all
}

func (a *watchers) follow(ctx context.Context, url, id string, heard func()) {
	defer heard()
	defer func() {
		if ctx.Err() == nil {
			a.broken.Add(1)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), `data: {"campaign_id":"`+id+`"`) {
			a.events.Add(1)
			heard()
		}
	}
}

// leave ends the watchers, none of which may have been dropped,
// and returns each one's events per second.
func (a *watchers) leave(b *testing.B) float64 {
	b.Helper()
	rate := float64(a.events.Load()) / watchersBeside / time.Since(a.started).Seconds()
	require.Zero(b, a.broken.Load())
	a.stop()
	a.done.Wait()
	return rate
}
