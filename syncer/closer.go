package syncer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"gorm.io/gorm"

	"dibs/lua"
	"dibs/models"
)

// ErrUnsettled says that it can't be told yet what of a closed campaign nobody took.
var ErrUnsettled = errors.New("syncer: closed campaign is not settled")

// CloserConfig is how a Closer works. DB, Scripts, Hydrator, Relay and Logger are required.
type CloserConfig struct {
	DB       *gorm.DB
	Scripts  Scripts
	Hydrator *Hydrator
	Relay    *Relay

	Batch int // places of packets of one transaction; by default, and at most, ReturnBatchMax

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// ReturnBatchMax bounds the packets that are returned by one transaction.
const ReturnBatchMax = 5000

// WithDefaults returns a copy with defaults where nothing is set.
func (c CloserConfig) WithDefaults() CloserConfig {
	orDefault(&c.Batch, ReturnBatchMax)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c CloserConfig) Validate() error {
	switch {
	case c.DB == nil:
		return required("DB")
	case c.Scripts == nil:
		return required("Scripts")
	case c.Hydrator == nil:
		return required("Hydrator")
	case c.Relay == nil:
		return required("Relay")
	case c.Logger == nil:
		return required("Logger")
	case c.Batch < 1 || c.Batch > ReturnBatchMax:
		return fmt.Errorf("%w: Batch must be 1 to %d", ErrConfig, ReturnBatchMax)
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
// Close is for one goroutine; several processes at once are no harm.
type Closer struct {
	cfg      CloserConfig
	returned prometheus.Counter
	cursors  map[string]int64 // by campaign: the place of a packet up to which step 1 is done

	settled func(ctx context.Context, c *models.Campaign) (bool, error) // is isSettled; tests put others in its place
	step    func(name string)                                           // tests only: called between the steps
}

// NewCloser checks cfg and makes a closer.
func NewCloser(cfg CloserConfig) (*Closer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Closer{
		cfg: cfg, cursors: make(map[string]int64), step: func(string) {},
		returned: promauto.With(cfg.Registerer).NewCounter(prometheus.CounterOpts{
			Name: "dibs_packets_returned_total", Help: "Packets of closed campaigns that nobody took and that this process returned.",
		}),
	}
	c.settled = c.isSettled
	return c, nil
}

// Close goes once over all closed campaigns whose end was not told and returns how many it ended. One whose claims are on their
// way waits for a later round; any other reason to wait is returned, as an ErrUnsettled, after the others had their turn.
func (r *Closer) Close(ctx context.Context) (ended int, err error) {
	var failed []error
	for after := ""; ; {
		var page []models.Campaign
		err := r.cfg.DB.WithContext(ctx).Where("status = ? AND closed_told_at IS NULL AND id > ?", models.StatusClosed, after).
			Order("id").Limit(sweepBatch).Find(&page).Error
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
			if err != nil && len(failed) < sweepBatch {
				failed = append(failed, err)
			}
		}
		if len(page) < sweepBatch {
			return ended, errors.Join(failed...)
		}
		after = page[len(page)-1].ID
	}
}

// end takes a campaign as far as it goes.
func (r *Closer) end(ctx context.Context, c *models.Campaign) (ended bool, err error) {
	if settled, err := r.settled(ctx, c); err != nil || !settled {
		return false, err
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
	if _, err := r.cfg.Relay.Apply(ctx, []models.OutboxRow{row}); err != nil { // the relay tells it later
		return true, fmt.Errorf("syncer: return %s: %w", c.ID, err)
	}
	return true, nil
}

// isSettled tells whether each claim of a closed campaign that Redis ever accepted has its row, and none can come any more.
// That stays so once it is so.
func (r *Closer) isSettled(ctx context.Context, c *models.Campaign) (bool, error) {
	switch {
	case c.Residency == models.ResidencyLost:
		return false, fmt.Errorf("%w: %s: redis lost it: %s", ErrUnsettled, c.ID, c.ResidencyReason)
	case isResident(c):
		if settled, err := r.isDrained(ctx, c); err != nil || !settled {
			return false, err
		}
	}
	// It is not in Redis, all of it is in MySQL, and who brings it back reads that it is closed before a claim is taken.
	parked, err := r.cfg.Hydrator.parked(ctx, c.ID)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	if names := parked.names(); len(names) > 0 { // somebody was told that it is theirs
		return false, fmt.Errorf("%w: %s: %s", ErrUnsettled, c.ID, names)
	}
	return true, nil
}

// isDrained is isSettled of a campaign that is in Redis, but for parked claims.
func (r *Closer) isDrained(ctx context.Context, c *models.Campaign) (bool, error) {
	if c.AppliedVersion != c.Version {
		return false, nil // the sweeper tells Redis
	}
	wrong, err := r.cfg.Hydrator.wrong(ctx, c)
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
	parked, err := r.cfg.Hydrator.parked(ctx, c.ID)
	if err == nil && len(parked.names()) > 0 {
		err = fmt.Errorf("%w: %s: %s", ErrUnsettled, c.ID, parked.names())
	}
	return false, err // without any they are on their way
}
