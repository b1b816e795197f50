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
	// askTimeout bounds a sample, so that a hanging server is reported
	// before the next one.
	askTimeout = 900 * time.Millisecond
	// ActiveMax bounds the campaigns of a watcher of all: those whose
	// counters changed last.
	ActiveMax = 256
	// activeEvery is how often the active campaigns are listed.
	activeEvery = 5 * time.Second
	// WatchersMax bounds a process' watchers.
	WatchersMax = 500
	// WatchersOfActorMax bounds one actor's watchers, so that one token
	// doesn't exclude the others.
	WatchersOfActorMax = WatchersMax / 2
)

// Config is what a Sampler needs.
type Config struct {
	Redis      Redis
	Books      Books
	Busy       func(most int) []string // the campaigns that this process serves; nil: unknown
	Workers    *workers.Group          // its stop waits for the sampler
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// errFull means the process or the actor has its maximum of watchers.
var errFull = errors.New("live: too many watchers")

var errStopping = errors.New("live: stopping")

// Sampler records how claims were answered. Once a second it samples the
// campaigns that are watched or had recent claims.
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
	wake     chan struct{}     // a watcher came without a frame for it, or the last one left
	last     map[string][]byte // frames of the last sample, so that a new watcher needn't wait
	lastAll  []byte
	isMySQL  bool // whether it answered the last sample
	pasts    map[string]*past

	public        atomic.Pointer[publicPages]
	readingPublic sync.Mutex                      // held by the request that reads
	publicBooks   map[string]models.CampaignBooks // MySQL's last answer, under readingPublic

	claimedAt map[string]time.Time // campaigns' last claims in this process
	kept      []string             // campaigns sampled without a watcher, the last claimed first
	keptAt    time.Time            // when all of them were sampled

	// The fields below belong to the loop. It resets them under mu when it
	// ends.
	histories map[string]*history
	books     map[string]models.CampaignBooks // MySQL's last answer
	active    []string
	activeAt  time.Time

	booksFailed bool // MySQL didn't answer the last time
}

// watcher gets the events of some campaigns, or of all active ones. A slow
// watcher misses events without delaying others.
type watcher struct {
	actor   string
	ids     []string // nil: all
	several bool
	isPast  bool // the past is sent first
	frames  chan []byte
}

// New makes a Sampler.
func New(cfg Config) *Sampler {
	s := &Sampler{
		cfg: cfg, watchers: make(map[*watcher]struct{}), byActor: map[string]int{}, wake: make(chan struct{}, 1),
		pasts: make(map[string]*past), claimedAt: make(map[string]time.Time), histories: make(map[string]*history),
		logSome: rate.Sometimes{Interval: 10 * time.Second},
		gauge: promauto.With(cfg.Registerer).NewGauge(prometheus.GaugeOpts{
			Name: "dibs_watchers", Help: "Watchers of live events at this process.",
		}),
	}
	s.public.Store(&publicPages{})
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Stop ends all watchers and accepts no new ones.
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

// runLocked starts the sampler if needed; false if the process is stopping.
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
		case <-s.wake: // this round serves it
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

// wanted returns the campaigns to sample by id, and whether a watcher wants
// all. If there is nothing to sample the loop ends, unless it records. The
// next watcher starts a new one.
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
	for _, id := range s.dueLocked(time.Now()) {
		ids[id] = struct{}{}
	}
	if len(s.watchers) == 0 && len(s.kept) == 0 || s.ctx.Err() != nil {
		s.running = s.counts != nil && s.ctx.Err() == nil
		clear(s.pasts)
		s.last = nil
		s.lastAll = nil
		clear(s.histories)
		s.books = nil
		s.active = nil
		return nil, false, false
	}
	wanted = len(s.watchers) > 0 || len(ids) > 0
	if !wanted { // a new watcher gets no old frame
		s.last = nil
		s.lastAll = nil
	}
	return slices.Sorted(maps.Keys(ids)), all, wanted
}

// broadcast sends frames to the watchers. A newer frame replaces one that
// wasn't taken yet.
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
		w.frames <- frame // never blocks: only holders of mu send
	}
}

// frameOf is the last sample's frame for a watcher, or nil.
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
