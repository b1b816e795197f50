package resolve

import (
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

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"gorm.io/gorm"
)

// ErrUnsettled says that it can't be told yet what of a closed campaign nobody took.
var ErrUnsettled = errors.New("syncer: closed campaign is not settled")

// CloserConfig is how a Closer works. DB, Scripts, Hydrator, Relay and Logger are required.
type FinalizerConfig struct {
	DB       *gorm.DB
	Scripts  campaigns.Scripts
	Hydrator *residency.Hydrator
	Relay    *Relay

	Batch       int           // places of packets of one transaction; by default, and at most, ReturnBatchMax
	ReturnDelay time.Duration // how long a campaign must have been seen settled before its packets go back

	Logger     *slog.Logger
	Clock      clockwork.Clock
	Registerer prometheus.Registerer // nil: no metrics
}

const (
	// ReturnBatchMax bounds the packets that are returned by one transaction.
	ReturnBatchMax = 5000
	// RestForDefault is longer than what a Redis with appendfsync everysec forgets when it dies: a second, and another one while
	// it waits for a slow disk.
	DefaultReturnDelay = 3 * time.Second
)

// WithDefaults returns a copy with defaults where nothing is set.
func (c FinalizerConfig) WithDefaults() FinalizerConfig {
	sqlstore.OrDefault(&c.Batch, ReturnBatchMax)
	sqlstore.OrDefault(&c.ReturnDelay, DefaultReturnDelay)
	if c.Clock == nil {
		c.Clock = clockwork.NewRealClock()
	}
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c FinalizerConfig) Validate() error {
	switch {
	case c.DB == nil:
		return sqlstore.Required("DB")
	case c.Scripts == nil:
		return sqlstore.Required("Scripts")
	case c.Hydrator == nil:
		return sqlstore.Required("Hydrator")
	case c.Relay == nil:
		return sqlstore.Required("Relay")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case c.Batch < 1 || c.Batch > ReturnBatchMax:
		return fmt.Errorf("%w: Batch must be 1 to %d", sqlstore.ErrConfig, ReturnBatchMax)
	case c.ReturnDelay < 0:
		return fmt.Errorf("%w: RestFor must be positive", sqlstore.ErrConfig)
	}
	return nil
}

// Closer ends closed campaigns, each once: when every claim that Redis accepted has its row, and so every packet that was
// taken its owner, the packets that nobody took go back to the sender, and campaign.closed tells their sum. Three steps, any of
// which may be repeated, by anybody:
//
//  1. Packets without an owner are marked as returned, in bounded batches. A campaign without a sender keeps its.
//  2. One transaction notes that the end is told and puts the event, whose id follows from the campaign's, into the outbox.
//  3. The event goes to the claim stream; the relay does that, too.
//
// Nothing of this begins before the campaign was seen so for RestFor, by the same load and definition each time. A Redis that
// dies and forgets the close gives packets away again: if it does so within that time, the next look finds it behind the
// definition that was in force, and takes it for lost; if later, the close is on its disk.
//
// Close is for one goroutine; several processes at once are no harm.
type Finalizer struct {
	cfg      FinalizerConfig
	returned prometheus.Counter
	cursors  map[string]int64  // by campaign: the place of a packet up to which step 1 is done
	resting  map[string]rested // by campaign: settled, and for how long

	settled func(ctx context.Context, c *models.Campaign) (bool, error) // is isSettled; tests put others in its place
	step    func(name string)                                           // tests only: called between the steps
}

// NewCloser checks cfg and makes a closer.
func NewFinalizer(cfg FinalizerConfig) (*Finalizer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Finalizer{
		cfg: cfg, cursors: make(map[string]int64), resting: make(map[string]rested), step: func(string) {},
		returned: promauto.With(cfg.Registerer).NewCounter(prometheus.CounterOpts{
			Name: "dibs_packets_returned_total", Help: "Packets of closed campaigns that nobody took and that this process returned.",
		}),
	}
	c.settled = c.isSettled
	return c, nil
}

// Close goes once over all closed campaigns whose end was not told and returns how many it ended. One whose claims are on their
// way, or that was not seen settled for long enough, waits for a later round; any other reason to wait is returned, as an
// ErrUnsettled, after the others had their turn.
func (r *Finalizer) Finalize(ctx context.Context) (ended int, err error) {
	var failed []error
	for after := ""; ; {
		var page []models.Campaign
		err := r.cfg.DB.WithContext(ctx).Where("status = ? AND closed_told_at IS NULL AND id > ?", models.StatusClosed, after).
			Order("id").Limit(campaigns.PageSize).Find(&page).Error
		if err != nil {
			return ended, errors.Join(append(failed, fmt.Errorf("syncer: return: %w", err))...)
		}
		for i := range page {
			done, err := r.end(ctx, &page[i])
			switch {
			case done:
				ended++
			case ctx.Err() != nil:
				return ended, fmt.Errorf("syncer: return: %w", context.Cause(ctx))
			}
			if err != nil && len(failed) < campaigns.PageSize {
				failed = append(failed, err)
			}
		}
		if len(page) < campaigns.PageSize {
			return ended, errors.Join(failed...)
		}
		after = page[len(page)-1].ID
	}
}

// end takes a campaign as far as it goes.
func (r *Finalizer) end(ctx context.Context, c *models.Campaign) (ended bool, err error) {
	settled, err := r.settled(ctx, c)
	if err != nil || !settled {
		delete(r.resting, c.ID)
		return false, err
	}
	if !r.hasRested(c) {
		return false, nil
	}
	if c.Kind == models.KindPacket && c.SenderID != "" {
		if err := r.giveBack(ctx, c); err != nil {
			return false, err
		}
	}
	row, ended, err := r.tell(ctx, c)
	if err != nil || !ended {
		return false, err
	}
	r.step("committed")
	delete(r.cursors, c.ID)
	delete(r.resting, c.ID)
	if _, err := r.cfg.Relay.Apply(ctx, []models.OutboxRow{row}); err != nil { // the relay tells it later
		return true, fmt.Errorf("syncer: return %s: %w", c.ID, err)
	}
	return true, nil
}

// rested is since when a campaign is settled, by which load and definition.
type rested struct {
	epoch, version int64
	since          time.Time
}

// hasRested notes that a campaign is settled, and tells whether it has been for RestFor.
func (r *Finalizer) hasRested(c *models.Campaign) bool {
	now, seen := r.cfg.Clock.Now(), r.resting[c.ID]
	if seen.since.IsZero() || seen.epoch != c.Epoch || seen.version != c.Version {
		seen = rested{epoch: c.Epoch, version: c.Version, since: now}
		r.resting[c.ID] = seen
	}
	return now.Sub(seen.since) >= r.cfg.ReturnDelay
}

// isSettled tells whether each claim of a closed campaign that Redis ever accepted has its row, and none can come any more.
// That stays so once it is so, unless Redis forgets.
func (r *Finalizer) isSettled(ctx context.Context, c *models.Campaign) (bool, error) {
	switch {
	case c.Residency == models.ResidencyLost:
		return false, fmt.Errorf("%w: %s: redis lost it: %s", ErrUnsettled, c.ID, c.ResidencyReason)
	case campaigns.IsResident(c):
		if settled, err := r.isDrained(ctx, c); err != nil || !settled {
			return false, err
		}
	default:
		if err := r.isGone(ctx, c); err != nil {
			return false, err
		}
	}
	// It is not in Redis, all of it is in MySQL, and who brings it back reads that it is closed before a claim is taken.
	parked, err := r.cfg.Hydrator.Parked(ctx, c.ID)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	if names := parked.Names(); len(names) > 0 { // somebody was told that it is theirs
		return false, fmt.Errorf("%w: %s: %s", ErrUnsettled, c.ID, names)
	}
	return true, nil
}

// isGone returns nil if Redis can't take claims of a campaign that is not there by the books.
func (r *Finalizer) isGone(ctx context.Context, c *models.Campaign) error {
	state, err := r.cfg.Scripts.State(ctx, c.ID)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return nil
	case err != nil:
		return fmt.Errorf("syncer: return %s: %w", c.ID, err)
	case state.Status != models.StatusOpen && state.Status != models.StatusPaused: // closed, fenced, or a load that nobody confirmed
		return nil
	}
	return fmt.Errorf("%w: %s: it is %s, yet redis holds load %d of it, %s", ErrUnsettled, c.ID, c.Residency, state.Epoch, state.Status)
}

// isDrained is isSettled of a campaign that is in Redis, but for parked claims.
func (r *Finalizer) isDrained(ctx context.Context, c *models.Campaign) (bool, error) {
	if c.AppliedVersion != c.Version {
		return false, nil // the sweeper tells Redis
	}
	wrong, err := r.cfg.Hydrator.Wrong(ctx, c)
	switch {
	case err != nil:
		return false, err
	case wrong != "":
		return false, errors.Join(fmt.Errorf("%w: %s: %s", ErrUnsettled, c.ID, wrong), r.cfg.Hydrator.Examine(ctx, c.ID))
	}
	state, err := r.cfg.Scripts.State(ctx, c.ID)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return false, nil // evicted just now, or lost: the next round sees
	case err != nil:
		return false, fmt.Errorf("syncer: return %s: %w", c.ID, err)
	case state.Epoch != c.Epoch:
		return false, nil
	case state.Status != models.StatusClosed:
		return false, fmt.Errorf("%w: %s: redis says that it is %s", ErrUnsettled, c.ID, state.Status)
	}
	if state.Seq == c.SyncedSeq {
		return true, nil
	}
	parked, err := r.cfg.Hydrator.Parked(ctx, c.ID)
	if err == nil && len(parked.Names()) > 0 {
		err = fmt.Errorf("%w: %s: %s", ErrUnsettled, c.ID, parked.Names())
	}
	return false, err // without any they are on their way
}
