package torture

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	readyEvery  = 100 * time.Millisecond // between two requests of /readyz
	readyWithin = time.Second            // for a reply
	// by then /readyz must have noticed that claims are served again.
	foundWithin = 2 * time.Second
	// how long a served claim proves service.
	servedFor = time.Second
)

// readiness compares an API's /readyz with its service.
type readiness struct {
	mu     sync.Mutex
	asked  time.Time            // the last request
	since  time.Time            // start of its current no; zero: it is ready
	serves time.Time            // claims are served since then, without a gap
	served time.Time            // end of the last one
	of     map[string]time.Time // campaign -> the end of its last one

	unready time.Duration // total time of no
	wrong   time.Duration // of that, while claims were served
}

func (r *readiness) claimed(campaignID string, started, ended time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if started.Sub(r.served) > servedFor {
		r.serves = started
	}
	r.served = ended
	if r.of == nil {
		r.of = make(map[string]time.Time)
	}
	r.of[campaignID] = ended
}

// refused records a claim that was not served. If others of the
// campaign just were, Redis is unstable.
func (r *readiness) refused(campaignID string, ended time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended.Sub(r.of[campaignID]) < foundWithin {
		r.serves = ended
	}
}

// said records a reply of /readyz, or its absence.
func (r *readiness) said(no bool, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := at.Sub(r.asked)
	r.asked = at
	if !no {
		r.since = time.Time{}
		return
	}
	if r.since.IsZero() {
		r.since = at
		return
	}
	r.unready += passed
	known := at.Add(-foundWithin)
	if r.since.Before(known) && r.serves.Before(known) && at.Sub(r.served) < servedFor {
		r.wrong += passed
	}
}

func (r *readiness) sums() (unready, wrong time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unready, r.wrong
}

// askReady polls an API's /readyz until ctx ends. A process asked
// to stop rightly reports not ready.
func (p *part) askReady(ctx context.Context) {
	client := &http.Client{Timeout: readyWithin, Transport: &http.Transport{DisableKeepAlives: true}}
	for ; ctx.Err() == nil; wait(ctx, readyEvery) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/readyz", http.NoBody)
		if err != nil {
			return
		}
		no := false
		if res, err := client.Do(req); err == nil {
			_ = res.Body.Close()
			no = res.StatusCode == http.StatusServiceUnavailable
		}
		p.ready.said(no && !p.isStopping(), time.Now())
	}
}

func (p *part) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isEnding
}

func ends(sig syscall.Signal) bool { return sig == syscall.SIGTERM || sig == syscall.SIGKILL }

// checkAvailability checks that no API reported not ready while
// it served claims, and no process crashed or ended by itself.
func (rd *round) checkAvailability() {
	var unready, wrong time.Duration
	exits := 0
	for _, p := range slices.Concat(rd.w.parts, rd.w.spares) {
		no, lie := p.ready.sums()
		unready += no
		wrong += lie
		if lie > 0 {
			rd.brokenf("availability: /readyz of %s said no for %s while it served claims", p.name, lie)
		}
		p.mu.Lock()
		exits += len(p.exits)
		for _, exit := range p.exits {
			rd.brokenf("availability: %s", exit)
		}
		p.mu.Unlock()
	}
	rd.report.UnreadyMs = unready.Milliseconds()
	rd.report.UnreadyWrongMs = wrong.Milliseconds()
	rd.report.Exits = exits
}
