package reconcile

import (
	"log/slog"
	"time"

	"dibs/lua"
	"dibs/syncer/residency"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

const (
	countEvery  = time.Minute // rows are counted so often: a million takes MySQL about a second
	recordEvery = time.Minute // a comparison that found nothing new is recorded so often
	maxRecorded = 1000        // rows of reconciliations that are kept of a campaign, and up to as many more until the next prune
)

// Depth is how closely a campaign is compared.
type Depth int

// The depths; each includes the one before.
const (
	DepthBooks Depth = iota // the counters of both servers
	DepthRows               // the rows of claims, idempotency records and packets in Redis, and whether a backlog is on its way at all
	DepthUsers              // what each user holds, the owner of each packet, and what may be left behind in Redis
)

// Reconciler compares what Redis and MySQL say of a campaign at a common watermark: when MySQL has a row for each claim that
// Redis accepted. Until then MySQL lags, which is business as usual and never called a difference.
type Reconciler struct {
	db       *gorm.DB
	scripts  *lua.Scripts
	hydrator *residency.Hydrator // rebuilds Redis
	log      *slog.Logger
	metrics  *metrics
	past     map[string]*past // by campaign; Reconcile's own
	round    int              // of Reconcile, counted
	moved    roundRobin       // of Reconcile, as still
	still    roundRobin
	rest     int      // rounds of Reconcile until the books are read again
	resting  []string // the campaigns in the meantime
	flushed  string   // the newest flush when they were read

	countEvery  time.Duration // is the constant, but in tests
	maxRecorded int           // is the constant, but in tests
}

// New makes a reconciler; reg may be nil. Reconcile is for one goroutine, the others for any number.
func New(db *gorm.DB, scripts *lua.Scripts, hydrator *residency.Hydrator, log *slog.Logger, reg prometheus.Registerer) *Reconciler {
	return &Reconciler{
		db: db, scripts: scripts, hydrator: hydrator, log: log, metrics: newMetrics(reg), past: make(map[string]*past),
		countEvery: countEvery, maxRecorded: maxRecorded,
	}
}
