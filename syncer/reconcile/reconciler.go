package reconcile

import (
	"context"
	"log/slog"
	"time"

	"dibs/lua"
	"dibs/syncer/campaigns"
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

// Scripts is the part of lua.Scripts that a Reconciler uses.
type Scripts interface {
	campaigns.Scripts
	Entries(ctx context.Context, partition int, from lua.EntryID, most int) ([]lua.Entry, error)
	IsPending(ctx context.Context, partition int, group string, id lua.EntryID) (bool, error)
	CountClaimRecords(ctx context.Context, campaignID string) (int64, error)
	ScanClaimRecords(ctx context.Context, campaignID string, each func([]lua.RecordedClaim) error) error
	ScanUserRecords(ctx context.Context, campaignID string, each func(user, record string)) error
	PacketLists(ctx context.Context, campaignID string, epoch int64) ([]lua.PacketList, error)
	HeldPacketLists(ctx context.Context, keys []string) (held []string, err error)
	DropPacketLists(ctx context.Context, keys []string) error
}

var _ Scripts = (*lua.Scripts)(nil)

// Reconciler compares what Redis and MySQL say of a campaign at a common watermark: when MySQL has a row for each claim that
// Redis accepted. Until then MySQL lags, which is business as usual and never called a difference.
type Reconciler struct {
	db       *gorm.DB
	scripts  Scripts
	hydrator *residency.Hydrator // rebuilds Redis
	log      *slog.Logger
	metrics  *metrics
	past     map[string]*past // by campaign; Reconcile's own
	round    int              // of Reconcile, counted
	moved    roundRobin       // of Reconcile, as still
	still    roundRobin
	rest     int      // rounds of Reconcile until the books are read again
	resting  []string // the campaigns in the meantime

	countEvery  time.Duration // is the constant, but in tests
	maxRecorded int           // is the constant, but in tests
}

// New makes a reconciler; reg may be nil. Reconcile is for one goroutine, the others for any number.
func New(db *gorm.DB, scripts Scripts, hydrator *residency.Hydrator, log *slog.Logger, reg prometheus.Registerer) *Reconciler {
	return &Reconciler{
		db: db, scripts: scripts, hydrator: hydrator, log: log, metrics: newMetrics(reg), past: make(map[string]*past),
		countEvery: countEvery, maxRecorded: maxRecorded,
	}
}
