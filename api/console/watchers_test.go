package console_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	browserruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"dibs/internal/servetest"
	"dibs/internal/testenv"
)

// TestTwoHundredWatchersAndAPageLeftOpen: while claims are made and refused, 200 programs and a page of the console watch, for seconds in
// an everyday run and for an hour in a soak. None is dropped or left without news, and neither the service nor the page grows.
func TestTwoHundredWatchersAndAPageLeftOpen(t *testing.T) { //nolint:paralleltest // it weighs its own process
	warm, watched := 2*time.Second, 5*time.Second
	if testenv.Soak() {
		warm, watched = 12*time.Minute, 48*time.Minute // plots hold ten minutes
	}
	servers := []string{
		"DIBS_REDIS_URL=" + testenv.Redis(t).URL(), "DIBS_MYSQL_DSN=" + testenv.Database(t).DSN,
		"DIBS_GROUPS=syncer", "DIBS_LOG_LEVEL=warn", // or the log of an hour is in the heap
	}
	servetest.Migrate(t, servers...)
	s := serve(t, servers...)
	s.coupon("spring", 1_000_000, `,"per_user":1`)
	s.coupon("summer", 10, "")
	var page *browser
	if _, err := exec.LookPath("chromium"); err == nil {
		page = open(t, s)
		page.signIn(viewer)
		page.visit("/console/campaigns/spring")
	}
	crowd := s.watch(200)
	stop := s.rush("spring", 100*time.Millisecond)
	defer stop()

	crowd.wait(warm)
	before := weigh(t, page)
	for left := watched; left > 0; left -= time.Minute {
		crowd.wait(min(left, time.Minute))
		if now := weigh(t, page); testenv.Soak() {
			t.Logf("%s left: %+v, longest silence %s", left-time.Minute, now, crowd.silence())
		}
	}
	after := weigh(t, page)
	t.Logf("after %s: %+v, after %s more: %+v; longest silence of a watcher %s", warm, before, watched, after, crowd.silence())

	require.Less(t, after.heapKB-before.heapKB, int64(4<<10), "heap of the service after a collection")
	require.Less(t, after.goroutines-before.goroutines, 40, "goroutines of the service")
	require.Less(t, after.pageKB-before.pageKB, int64(1<<10), "heap of the page after a collection")
	require.Less(t, after.pageNodes-before.pageNodes, int64(400), "elements of the page")
	if page != nil {
		require.Equal(t, "Live", eval[string](page, "document.querySelector('#live').textContent"))
		said := slices.DeleteFunc(page.said(), func(s string) bool { return strings.Contains(s, "status of 503") }) // a busy server; it asked again
		require.Empty(t, said)
	}
	stop()
	for i, told := range crowd.leave() {
		require.NoError(t, told.err, "watcher %d", i)
		require.Less(t, time.Duration(told.silence.Load()), silenceMax, "watcher %d", i)
		require.Greater(t, told.events.Load(), int64((warm+watched).Seconds()*0.8), "events of watcher %d", i)
	}
}

// silenceMax is less than what a page of the console calls silence.
const silenceMax = 12 * time.Second

// weight is what a service and a page take.
type weight struct {
	heapKB     int64
	goroutines int
	pageKB     int64
	pageNodes  int64
}

// weigh counts what is left after a collection.
func weigh(t testing.TB, page *browser) (w weight) {
	t.Helper()
	runtime.GC()
	runtime.GC() // what pools held over the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	w.heapKB, w.goroutines = int64(m.HeapAlloc>>10), runtime.NumGoroutine()
	if page == nil {
		return w
	}
	page.do(func(ctx context.Context, tab *chromedp.Target) (chromedp.Void, error) {
		if _, err := cdp.Call(ctx, tab, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return chromedp.Void{}, err
		}
		used, err := cdp.Call(ctx, tab, browserruntime.GetHeapUsage, cdp.Empty{})
		w.pageKB = int64(used.UsedSize) >> 10
		return chromedp.Void{}, err
	})
	w.pageNodes = eval[int64](page, "document.querySelectorAll('*').length")
	return w
}

// watchers are programs that watch.
type watchers struct {
	t    testing.TB
	stop context.CancelFunc
	each []*told
	done sync.WaitGroup
}

// told is what came to one watcher.
type told struct {
	events  atomic.Int64 // of campaign spring
	silence atomic.Int64 // the longest, in nanoseconds
	err     error        // why it ended, before it was told to
}

// watch starts watchers, every other one of one campaign, the rest of all.
func (s *service) watch(n int) *watchers {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	w := &watchers{t: s.t, stop: stop}
	transport := &http.Transport{}
	s.t.Cleanup(transport.CloseIdleConnections)
	for i := range n {
		one := &told{}
		w.each = append(w.each, one)
		path := []string{"/v1/watch", "/v1/campaigns/spring/watch"}[i%2]
		w.done.Go(func() {
			if err := one.follow(ctx, &http.Client{Transport: transport}, s.url+path); ctx.Err() == nil {
				one.err = err
			}
		})
	}
	s.t.Cleanup(func() { w.leave() })
	return w
}

// errEnded says that the service ended a stream.
var errEnded = errors.New("the stream ended")

// follow reads events until ctx or the stream ends.
func (o *told) follow(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+viewer)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	last, lines := time.Now(), bufio.NewScanner(res.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), `data: {"campaign_id":"spring"`) {
			o.events.Add(1)
			o.silence.Store(max(o.silence.Load(), int64(time.Since(last))))
			last = time.Now()
		}
	}
	return errors.Join(errEnded, lines.Err())
}

// wait lets time pass.
func (w *watchers) wait(d time.Duration) {
	w.t.Helper()
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
		w.t.FailNow()
	}
}

// silence is the longest of all watchers.
func (w *watchers) silence() time.Duration {
	longest := slices.MaxFunc(w.each, func(a, b *told) int { return int(a.silence.Load() - b.silence.Load()) })
	return time.Duration(longest.silence.Load()).Round(time.Millisecond)
}

// leave ends the watchers and reports what came to each.
func (w *watchers) leave() []*told {
	w.stop()
	w.done.Wait()
	return w.each
}
