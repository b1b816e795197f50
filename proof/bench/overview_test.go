package bench_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	overviewConnections = 50
	overviewLoads       = 200             // of the first page, in sequence
	overviewPages       = 3               // open beside a rush
	overviewEvery       = 2 * time.Second // one load of the first page, beside a rush
)

// benchOverview loads the console's first page over many
// campaigns: alone, and beside a rush with open pages.
func benchOverview(b *testing.B, s *sheet) {
	m := &many{whole: newWhole(b, "DIBS_IDLE_EVICT=10h", "DIBS_GROUPS=syncer")}
	s.Facts = append(m.facts(b), wrkVersion(b))
	m.span = longSpan()
	m.createAll(b, amount(manyCampaigns))
	m.startBoth(b)
	m.start(b, "syncer")
	m.untilClaimed(b, m.ids[:min(len(m.ids), manyInBatch)]) // and with them in Redis, the busiest
	alone := "claims"
	beside := fmt.Sprintf("claims beside %d open overviews", overviewPages)
	page := fmt.Sprintf("first page of %d campaigns", len(m.ids))
	s.takeTurns([]func(){
		func() {
			var took []time.Duration
			for range amount(overviewLoads) {
				took = append(took, m.load(b.Context(), b, "/console"))
			}
			s.add(page+": p50", "ms", percentile(took, 0.5))
			s.add(page+": p95", "ms", percentile(took, 0.95))
		},
		func() { m.acceptedOf(b, s, m.create(b), alone, overviewConnections) },
		func() {
			id := m.create(b)
			open := m.openOverviews(b)
			m.acceptedOf(b, s, id, beside, overviewConnections)
			took := open.leave(b)
			s.add(page+": p95 beside a rush", "ms", percentile(took, 0.95))
		},
	})
	s.goal(b, page+": p95", atMost, 300)
	s.ratio(b, beside+" / "+alone, beside, alone, 0.97)
	s.note("`dibs api`, `dibs consumer` and `dibs syncer` as built for production; Redis, SQL server, wrk and the page loads share the cores with them.")
	s.note(fmt.Sprintf("An open overview reads its events, its health every 5 s and its table every 15 s; beside it the first page is loaded every %v.", overviewEvery))
}

// percentile is in milliseconds.
func percentile(took []time.Duration, part float64) float64 {
	slices.Sort(took)
	return float64(took[min(len(took)-1, int(part*float64(len(took))))].Microseconds()) / 1000
}

func (m *many) load(ctx context.Context, b *testing.B, path string) time.Duration {
	start := time.Now()
	text, err := m.page(ctx, path)
	if ctx.Err() == nil {
		require.NoError(b, err)
		require.NotEmpty(b, text)
	}
	return time.Since(start)
}

func (m *many) page(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.api.addr+path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "text/html")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%w: %s: %s", errChild, path, res.Status)
	}
	return string(text), err
}

type overviews struct {
	stop   context.CancelFunc
	done   sync.WaitGroup
	events atomic.Int64
	took   []time.Duration // by loads of the first page
}

var watchOf = regexp.MustCompile(`data-watch="([^"]+)"`)

// openOverviews opens pages and acts like their script.
func (m *many) openOverviews(b *testing.B) *overviews {
	b.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	o := &overviews{stop: stop}
	b.Cleanup(stop)
	text, err := m.page(ctx, "/console")
	require.NoError(b, err)
	watch := watchOf.FindStringSubmatch(text)
	require.NotNil(b, watch)
	every := func(pause time.Duration, do func()) {
		o.done.Go(func() {
			for tick := time.Tick(pause); ctx.Err() == nil; {
				select {
				case <-tick:
					do()
				case <-ctx.Done():
				}
			}
		})
	}
	for range overviewPages {
		o.done.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.api.addr+watch[1], nil)
			if err != nil {
				return
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return
			}
			defer func() { _ = res.Body.Close() }()
			buffer := make([]byte, 64<<10)
			for err == nil {
				_, err = res.Body.Read(buffer)
				o.events.Add(1)
			}
		})
		every(5*time.Second, func() { m.load(ctx, b, "/console/health") })
		every(15*time.Second, func() { m.load(ctx, b, "/console/table") })
	}
	every(span(overviewEvery), func() {
		if took := m.load(ctx, b, "/console"); ctx.Err() == nil {
			o.took = append(o.took, took)
		}
	})
	return o
}

// leave closes the pages, which must have had events, and
// returns the load times beside them.
func (o *overviews) leave(b *testing.B) []time.Duration {
	b.Helper()
	o.stop()
	o.done.Wait()
	require.Greater(b, o.events.Load(), int64(overviewPages))
	require.NotEmpty(b, o.took)
	return o.took
}
