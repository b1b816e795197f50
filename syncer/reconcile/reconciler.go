package reconcile

import (
	"dibs/internal/sleep"

	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/residency"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

// Defaults of ReconcilerConfig.
const (
	DefaultCountEvery   = time.Minute // counting a million rows takes MySQL about a second
	DefaultWriteEvery   = time.Minute
	DefaultKeepCompared = 1000 // rows a campaign

	comparePause, compareTries = 20 * time.Millisecond, 5 // looks at a busy campaign
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
	ScanUserRecords(ctx context.Context, campaignID string, each func(user, record string)) error
	PacketLists(ctx context.Context, campaignID string, epoch int64) ([]lua.PacketList, error)
	HeldPacketLists(ctx context.Context, keys []string) (held []string, err error)
	DropPacketLists(ctx context.Context, keys []string) error
}

var _ Scripts = (*lua.Scripts)(nil)

// ReconcilerConfig is how a Reconciler works. DB, Scripts, Hydrator and Logger are required.
type ReconcilerConfig struct {
	DB       *gorm.DB
	Scripts  Scripts
	Hydrator *residency.Hydrator // rebuilds what a repair wants rebuilt
	Group    string              // consumer group that brings the claim streams to MySQL

	CountEvery time.Duration // how often Reconcile counts the rows of a campaign
	WriteEvery time.Duration // a comparison that found nothing new is recorded this often
	Keep       int           // rows of reconciliations that are kept of a campaign, and up to as many more until the next prune

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c ReconcilerConfig) WithDefaults() ReconcilerConfig {
	sqlstore.OrDefault(&c.Group, models.GroupSyncer)
	sqlstore.OrDefault(&c.CountEvery, DefaultCountEvery)
	sqlstore.OrDefault(&c.WriteEvery, DefaultWriteEvery)
	sqlstore.OrDefault(&c.Keep, DefaultKeepCompared)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c ReconcilerConfig) Validate() error {
	switch {
	case c.DB == nil:
		return sqlstore.Required("DB")
	case c.Scripts == nil:
		return sqlstore.Required("Scripts")
	case c.Hydrator == nil:
		return sqlstore.Required("Hydrator")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case c.CountEvery < 0 || c.WriteEvery < 0 || c.Keep < 1:
		return fmt.Errorf("%w: CountEvery, WriteEvery and Keep must be positive", sqlstore.ErrConfig)
	}
	return nil
}

// Reconciler compares what Redis and MySQL say of a campaign at a common watermark: when MySQL has a row for each claim that
// Redis accepted. Behind it MySQL lags, which is business as usual and never called a difference.
type Reconciler struct {
	cfg     ReconcilerConfig
	metrics *reconcilerMetrics
	before  map[string]*remembered // by campaign; Reconcile's own
}

// NewReconciler checks cfg and makes a reconciler. Reconcile is for one goroutine, Compare and Repair for any number.
func NewReconciler(cfg ReconcilerConfig) (*Reconciler, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Reconciler{cfg: cfg, metrics: newReconcilerMetrics(cfg.Registerer), before: make(map[string]*remembered)}, nil
}

// RedisFigures are what Redis says of a campaign.
type RedisFigures struct {
	Epoch     int64         `json:"epoch"`
	Status    models.Status `json:"status"`
	Total     int64         `json:"total"`
	Taken     int64         `json:"taken"` // units
	Remaining int64         `json:"remaining"`
	Seq       int64         `json:"seq"`      // accepted claims
	Released  int64         `json:"released"` // claims
}

// MySQLFigures are what the counters in MySQL say of a campaign.
type MySQLFigures struct {
	Epoch      int64 `json:"epoch"`
	Total      int64 `json:"total"`
	Claimed    int64 `json:"claimed"` // units
	Remaining  int64 `json:"remaining"`
	SyncedSeq  int64 `json:"synced_seq"` // claims
	LostClaims int64 `json:"lost_claims"`
	Released   int64 `json:"released"` // claims
	Untold     int64 `json:"untold"`   // of these, Redis is yet to be told

	ParkedClaims int64 `json:"parked_claims"` // accepted by Redis, without a row because none can be written; counted nowhere above
	ParkedUnits  int64 `json:"parked_units"`
}

// RowFigures are what the rows of claims add up to.
type RowFigures struct {
	Claims   int64 `json:"claims"`
	Units    int64 `json:"units"`    // of live claims
	Last     int64 `json:"last"`     // highest seq
	Released int64 `json:"released"` // claims
}

// Comparison is what a look at a campaign found.
type Comparison struct {
	CampaignID  string           `json:"campaign_id"`
	Residency   models.Residency `json:"residency"`
	Redis       *RedisFigures    `json:"redis"` // nil: Redis does not hold it
	MySQL       MySQLFigures     `json:"mysql"`
	Rows        *RowFigures      `json:"rows"`              // nil: not counted
	Packets     *PacketFigures   `json:"packets,omitempty"` // nil: not counted, or there are none
	Backlog     *int64           `json:"backlog"`           // claims on their way to MySQL; nil: Redis does not hold the campaign
	Drift       *int64           `json:"drift"`             // units, Redis less MySQL; nil: no common watermark
	Differences []string         `json:"differences"`       // what can't be explained by claims that are on their way

	parked    bool     // there are events on the list of those that are parked, with a row or without
	forgotten []string // lists of packets of earlier loads

	inRedis  bool // what differs is in Redis, or can only be told from it: the rows alone don't mend it
	wentBack bool // Redis holds an older definition than it did, or fewer claims
}

// Agrees tells whether nothing is wrong with the books.
func (c *Comparison) Agrees() bool { return len(c.Differences) == 0 }

func (c *Comparison) differf(format string, args ...any) {
	c.Differences = append(c.Differences, fmt.Sprintf(format, args...))
}

func (c *Comparison) differInRedisf(format string, args ...any) {
	c.inRedis = true
	c.differf(format, args...)
}

// Compare looks at one campaign. A busy one is looked at a few times until both servers are at one watermark; if that never
// happens the counters and rows of MySQL are compared with each other only. A difference is looked at twice. Errors:
// models.ErrNotFound, those of lua.Scripts and of the database.
func (r *Reconciler) Compare(ctx context.Context, campaignID string, depth Depth) (Comparison, error) {
	var found Comparison
	pushed := int64(-1)
	for try, confirmed := 1, false; ; try++ {
		l := look{r: r, depth: depth, pushed: pushed}
		settled, err := l.take(ctx, campaignID)
		if err != nil {
			return Comparison{}, err
		}
		found, pushed = l.found, l.pushed
		if settled && (found.Agrees() || confirmed) || try >= compareTries {
			return found, nil
		}
		confirmed = settled
		if err := sleep.For(ctx, comparePause); err != nil {
			return Comparison{}, fmt.Errorf("syncer: compare %s: %w", campaignID, err)
		}
	}
}

// look is one look at a campaign: MySQL first, by one snapshot, then Redis, which is never behind it.
type look struct {
	r     *Reconciler
	depth Depth
	snap  *snapshot
	found Comparison

	pushed int64 // the position up to which a load under way had brought packets, at the look before and then at this one; -1: none was
}

// take returns whether another look would hardly tell more.
func (l *look) take(ctx context.Context, id string) (settled bool, err error) {
	if l.snap, err = l.r.snapshot(ctx, id, l.depth); err != nil {
		return false, err
	}
	c := &l.snap.campaign
	l.found = Comparison{
		CampaignID: c.ID, Residency: c.Residency, Rows: l.snap.rows, Packets: l.snap.packets, Differences: []string{},
		MySQL: MySQLFigures{
			c.Epoch, c.Total, c.Claimed, c.Remaining, c.SyncedSeq, c.LostClaims, c.ReleasedClaims, l.snap.untold,
			l.snap.parked.Claims, l.snap.parked.Units,
		},
	}
	l.found.parked = len(l.snap.parked.All) > 0
	for _, line := range l.snap.parked.Names() {
		l.found.differf("%s", line)
	}
	l.counters()
	switch {
	case c.Residency == models.ResidencyLost:
		l.found.differInRedisf("takes no claims: %s", c.ResidencyReason)
		return true, nil
	case !campaigns.IsResident(c):
		return true, nil
	}
	state, err := l.r.cfg.Scripts.State(ctx, id)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		l.found.differInRedisf("redis does not hold load %d", c.Epoch)
		return false, nil
	case errors.Is(err, lua.ErrDamaged):
		l.found.differInRedisf("%v", err)
		return true, nil
	case err != nil:
		return false, fmt.Errorf("syncer: compare %s: %w", id, err)
	}
	return l.with(ctx, &state)
}

// counters compares MySQL with itself: within a snapshot rows and counters agree, however far MySQL is behind Redis.
func (l *look) counters() {
	c := &l.snap.campaign
	if want := max(0, c.Total-c.Claimed); c.Remaining != want && (c.AppliedVersion == c.Version || !campaigns.IsResident(c)) {
		l.found.differf("campaigns.remaining is %d, total less claimed is %d", c.Remaining, want)
	}
	rows := l.snap.rows
	if rows == nil {
		return
	}
	if rows.Claims+c.LostClaims != c.SyncedSeq {
		l.found.differf("campaigns.synced_seq is %d, there are %d rows of claims and %d claims lost", c.SyncedSeq, rows.Claims, c.LostClaims)
	}
	if rows.Units != c.Claimed {
		l.found.differf("campaigns.claimed is %d, the rows of claims are of %d units", c.Claimed, rows.Units)
	}
	if rows.Released != c.ReleasedClaims {
		l.found.differf("campaigns.released_claims is %d, there are %d rows of released claims", c.ReleasedClaims, rows.Released)
	}
	l.owners()
}

// with compares MySQL with the state that Redis holds.
func (l *look) with(ctx context.Context, state *lua.State) (settled bool, err error) {
	c := &l.snap.campaign
	l.found.Redis = &RedisFigures{state.Epoch, state.Status, state.Total, state.Taken, state.Remaining(), state.Seq, state.Released}
	known := c.SyncedSeq + l.snap.parked.Claims
	backlog := max(0, state.Seq-known)
	l.found.Backlog = &backlog
	switch {
	case state.Epoch != c.Epoch:
		l.found.differInRedisf("redis holds load %d, mysql knows load %d", state.Epoch, c.Epoch)
		return false, nil // one may be on its way
	case state.Status == models.StatusLoading && l.goesOn(state):
		return false, nil
	case state.Status == models.StatusFenced || state.Status == models.StatusLoading:
		l.found.differInRedisf("load %d is %s in redis", state.Epoch, state.Status)
		return false, nil
	case residency.ForgotChange(c, state):
		l.found.wentBack = true
		l.found.differInRedisf("redis went back: it works by definition %d, %d was in force", state.Version, c.AppliedVersion)
		return true, nil
	case state.Seq > known:
		return l.behind(ctx, state)
	case state.Seq < known:
		l.found.wentBack = state.Seq < c.SyncedSeq
		l.found.differInRedisf("redis holds %d claims, mysql %d", state.Seq, known)
	case state.Released != c.ReleasedClaims:
		return l.releases(ctx, state)
	}
	if state.Version > c.Version {
		if err := l.newer(ctx, state); err != nil {
			return false, err
		}
	}
	l.drift(state)
	if state.Seq == known && l.depth >= DepthRows {
		return l.records(ctx, state)
	}
	return true, nil
}

// goesOn tells a load that brings packets, which takes seconds, from one that somebody left half done.
func (l *look) goesOn(state *lua.State) bool {
	before := l.pushed
	l.pushed = state.Pushed
	return before >= 0 && state.Pushed > before
}

// newer tells a change that came meanwhile from one that MySQL has lost: MySQL knows of each before Redis does.
func (l *look) newer(ctx context.Context, state *lua.State) error {
	now, err := campaigns.Read(l.r.cfg.DB.WithContext(ctx), l.snap.campaign.ID)
	if err == nil && now.Epoch == state.Epoch && now.Version < state.Version {
		l.found.differInRedisf("redis works by definition %d, the newest that mysql knows is %d", state.Version, now.Version)
	}
	return err
}

// drift compares the units.
func (l *look) drift(state *lua.State) {
	c := &l.snap.campaign
	claimed := c.Claimed + l.snap.parked.Units
	books := campaigns.BooksOf(c, l.snap.parked)
	drift := state.Drift(&books)
	if state.SameDefinition(&books) && state.Total != c.Total {
		l.found.differInRedisf("redis has a total of %d, mysql of %d", state.Total, c.Total)
	}
	if state.Taken != claimed {
		l.found.differInRedisf("redis has %d units taken, mysql %d claimed", state.Taken, claimed)
	}
	if drift == 0 && l.snap.rows != nil {
		drift = l.snap.rows.Units + l.snap.parked.Units - state.Taken
	}
	l.found.Drift = &drift
}

// behind tells claims that are on their way to MySQL from those that never get there: when the group has acknowledged all
// that the stream held after the state was read, and MySQL lacks some still, they are none of the former.
func (l *look) behind(ctx context.Context, state *lua.State) (settled bool, err error) {
	if l.depth < DepthRows {
		return false, nil
	}
	c := &l.snap.campaign
	stream, err := l.r.cfg.Scripts.Stream(ctx, c.Partition)
	if err != nil {
		return false, fmt.Errorf("syncer: compare %s: %w", c.ID, err)
	}
	unread, err := l.r.cfg.Scripts.Unread(ctx, c.Partition, l.r.cfg.Group)
	if err != nil {
		return false, fmt.Errorf("syncer: compare %s: %w", c.ID, err)
	}
	if !unread.Upto(stream.Tip) {
		return false, nil
	}
	now, err := campaigns.Read(l.r.cfg.DB.WithContext(ctx), c.ID)
	if err != nil || now.Epoch != state.Epoch || now.SyncedSeq+l.snap.parked.Claims >= state.Seq {
		return false, err
	}
	parked, err := l.r.cfg.Hydrator.Parked(ctx, c.ID) // what was on its way may be parked by now
	if err != nil || parked.Claims != l.snap.parked.Claims {
		return false, err
	}
	l.found.differInRedisf("redis accepted %d claims, mysql counts %d and nothing is on its way", state.Seq, now.SyncedSeq)
	l.drift(state)
	return true, nil
}
