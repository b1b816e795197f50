package live

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"dibs/api/workers"
	"dibs/internal/caller"
	"dibs/models"
)

const (
	// Every is the time between two events of a campaign.
	Every = time.Second
	// askTimeout bounds what a sample may take, so that a server that
	// hangs is reported before the next one is due.
	askTimeout = 900 * time.Millisecond
	// ActiveMax bounds the campaigns that a watcher of all is notified of:
	// those whose books moved last.
	ActiveMax = 256
	// activeEvery is how often MySQL is asked which campaigns are active.
	activeEvery = 5 * time.Second
	// WatchersMax bounds the watchers of a process.
	WatchersMax = 500
	// WatchersOfActorMax bounds those of one actor, so that one token does
	// not keep the others from watching.
	WatchersOfActorMax = WatchersMax / 2
)

// Config is what a Sampler needs.
type Config struct {
	Redis      Redis
	Books      Books
	Busy       func(most int) []string // the campaigns that this process serves; nil: not known
	Workers    *workers.Group          // its stop waits for the sampler
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// errFull says that a process, or the actor, has as many watchers as it
// may have.
var errFull = errors.New("live: too many watchers")

// errStopping says that the process ends.
var errStopping = errors.New("live: stopping")

// Sampler records how claims were answered and samples the campaigns that
// are watched, or were claimed from lately, once a second.
type Sampler struct {
	cfg     Config
	ctx     context.Context //nolint:containedctx // ends with Stop
	stop    func()
	gauge   prometheus.Gauge
	logSome rate.Sometimes

	mu       sync.Mutex
	watchers map[*watcher]struct{}
	byActor  map[string]int // watchers
	running  bool
	counts   Counts            // nil: nothing is recorded
	wake     chan struct{}     // a watcher came for whom there is nothing yet, or the last one left
	last     map[string][]byte // frames of the last sample, so that a new watcher does not wait
	lastAll  []byte
	isMySQL  bool // it answered the last sample
	pasts    map[string]*past

	public        atomic.Pointer[publicPages]
	readingPublic sync.Mutex                      // held by the one who reads
	publicBooks   map[string]models.CampaignBooks // the last that MySQL said, under readingPublic

	sampledUntil map[string]time.Time // campaigns that are sampled without a watcher

	// What follows is the loop's alone, which writes it under mu when it
	// ends.
	histories map[string]*history
	books     map[string]models.CampaignBooks // the last that MySQL said
	active    []string
	activeAt  time.Time

	booksFailed bool // MySQL did not answer the last time
}

// watcher gets the events of some campaigns, or of all active ones. A
// watcher that is slow misses events, it does not delay others.
type watcher struct {
	actor   string
	ids     []string // nil: all
	several bool
	isPast  bool // it is sent the past first
	frames  chan []byte
}

// New makes a Sampler.
func New(cfg Config) *Sampler {
	s := &Sampler{
		cfg: cfg, watchers: make(map[*watcher]struct{}), byActor: map[string]int{}, wake: make(chan struct{}, 1),
		pasts: make(map[string]*past), sampledUntil: make(map[string]time.Time),
		logSome: rate.Sometimes{Interval: 10 * time.Second},
		gauge: promauto.With(cfg.Registerer).NewGauge(prometheus.GaugeOpts{
			Name: "dibs_watchers", Help: "Watchers of live events at this process.",
		}),
	}
	s.public.Store(&publicPages{})
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Stop ends all watchers at once and takes no new ones.
func (s *Sampler) Stop() { s.stop() }

// watch adds a watcher. Errors: errFull, errStopping.
func (s *Sampler) watch(w *watcher) (*watcher, error) {
	w.frames = make(chan []byte, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) >= WatchersMax || w.actor != caller.Anonymous && s.byActor[w.actor] >= WatchersOfActorMax {
		return nil, errFull
	}
	if !s.runLocked() {
		return nil, errStopping
	}
	s.watchers[w] = struct{}{}
	s.byActor[w.actor]++
	s.gauge.Set(float64(len(s.watchers)))
	if frame := s.frameOf(w); frame != nil {
		w.frames <- frame
	} else {
		s.wakeUp()
	}
	return w, nil
}

// runLocked has the sampler run; false when the process ends.
func (s *Sampler) runLocked() bool {
	if !s.running {
		s.running = s.ctx.Err() == nil && s.cfg.Workers.Go(s.run)
	}
	return s.running
}

func (s *Sampler) unwatch(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
	s.byActor[w.actor]--
	if s.byActor[w.actor] == 0 {
		delete(s.byActor, w.actor)
	}
	if len(s.watchers) == 0 {
		s.wakeUp()
	}
	s.gauge.Set(float64(len(s.watchers)))
}

func (s *Sampler) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Sampler) run() {
	ticker := time.NewTicker(Every)
	defer ticker.Stop()
	for {
		select {
		case <-s.wake: // this round is for whoever asked
		default:
		}
		s.record()
		one, all, wanted := s.wanted()
		switch {
		case wanted:
			s.sample(s.ctx, one, all)
		case !s.isRunning():
			return
		}
		select {
		case <-ticker.C:
		case <-s.wake:
		case <-s.ctx.Done():
		}
	}
}

func (s *Sampler) isRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// wanted lists the campaigns that are sampled by id, and whether someone
// watches all. When there is nothing to sample the loop ends, unless it
// records: the next watcher starts a new one.
func (s *Sampler) wanted() (one []string, all, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make(map[string]struct{}, len(s.watchers))
	for w := range s.watchers {
		all = all || w.ids == nil
		for _, id := range w.ids {
			ids[id] = struct{}{}
		}
	}
	for _, id := range s.sampledLocked(time.Now()) {
		ids[id] = struct{}{}
	}
	if len(s.watchers) == 0 && len(ids) == 0 || s.ctx.Err() != nil {
		s.running = s.counts != nil && s.ctx.Err() == nil
		clear(s.pasts)
		s.last = nil
		s.lastAll = nil
		s.histories = nil
		s.books = nil
		s.active = nil
		return nil, false, false
	}
	return slices.Sorted(maps.Keys(ids)), all, true
}

// broadcast sends frames to the watchers. One who has not taken the last
// yet gets the newer in its place.
func (s *Sampler) broadcast(frames map[string][]byte, all []byte, isMySQL bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = frames
	s.lastAll = all
	s.isMySQL = isMySQL
	for w := range s.watchers {
		frame := s.frameOf(w)
		if frame == nil {
			continue
		}
		select {
		case <-w.frames:
		default:
		}
		w.frames <- frame // has space: who sends holds mu
	}
}

// frameOf is what a watcher is notified of the last sample; nil: nothing.
func (s *Sampler) frameOf(w *watcher) []byte {
	switch {
	case w.ids == nil:
		return s.lastAll
	case !w.several:
		return s.last[w.ids[0]]
	case s.last == nil:
		return nil
	}
	return together(s.last, w.ids, s.isMySQL)
}
