package residency

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

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"gorm.io/gorm"
)

// Defaults of HydratorConfig.
const (
	DefaultHydrateTimeout = 2 * time.Minute // a million claims take a fraction of it
	DefaultLoadLockFor    = 5 * time.Second // so long a campaign waits for a loader that died
	DefaultProofWait      = 500 * time.Millisecond
	DefaultGroup          = models.GroupSyncer // the consumer group whose acknowledgement says that MySQL has a claim

	lockPoll   = 10 * time.Millisecond
	proofPoll  = 10 * time.Millisecond
	roundsMost = 8 // under one lock, while others change what is looked at
	goesMost   = 3 // of one hydration
)

// HydratorConfig is how a Hydrator works. DB, Scripts and Logger are required.
type HydratorConfig struct {
	DB      *gorm.DB
	Scripts campaigns.Scripts
	Group   string // consumer group that brings the claim streams to MySQL

	Timeout   time.Duration // most that one hydration may take, whoever waits for it
	LockFor   time.Duration // how long a loader's lock lasts unless it is renewed
	ProofWait time.Duration // how long a proof waits for claims that are on their way into MySQL

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c HydratorConfig) WithDefaults() HydratorConfig {
	sqlstore.OrDefault(&c.Group, DefaultGroup)
	sqlstore.OrDefault(&c.Timeout, DefaultHydrateTimeout)
	sqlstore.OrDefault(&c.LockFor, DefaultLoadLockFor)
	sqlstore.OrDefault(&c.ProofWait, DefaultProofWait)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c HydratorConfig) Validate() error {
	switch {
	case c.DB == nil:
		return sqlstore.Required("DB")
	case c.Scripts == nil:
		return sqlstore.Required("Scripts")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case c.Timeout < 0 || c.ProofWait < 0:
		return fmt.Errorf("%w: Timeout and ProofWait must be positive", sqlstore.ErrConfig)
	case c.LockFor < 10*time.Millisecond:
		return fmt.Errorf("%w: LockFor must be at least 10ms", sqlstore.ErrConfig)
	}
	return nil
}

// Hydrator brings campaigns into Redis: those that were never there, those that were evicted, and those that Redis lost and
// that MySQL provably holds in full. A load takes these steps, each safe to repeat, by anybody, and none leads to a second
// stock over claims in flight:
//
//  1. MySQL hands out the number of this load, unless the campaign is in Redis by its books.
//  2. What MySQL holds of the campaign, by one snapshot, is staged in Redis beside what may be there.
//  3. Redis puts it in force in one step, with that number as its epoch and a status that takes no claims.
//  4. MySQL sets epoch and residency, if its books are still those of the snapshot. From here on Redis decides, and a
//     campaign that is absent is lost.
//  5. Redis takes the real status and version, if the epoch it holds is MySQL's.
//
// Who dies before 3 leaves staged records, which the next loader takes away. Between 3 and 5 the next who asks goes on, or
// loads again: before 5 nothing is claimed. A latecomer whose step 3 finds Redis empty after another's load was confirmed,
// claimed from and lost, leaves a copy with a number that MySQL does not have: step 5 never opens it.
type Hydrator struct {
	campaigns.Applier
	cfg         HydratorConfig
	generations generations
	metrics     *hydratorMetrics
	flights     singleflight.Group

	step func(name string) // tests only: called between the steps
}

// NewHydrator checks cfg and makes a hydrator over MySQL and Redis.
func NewHydrator(cfg HydratorConfig) (*Hydrator, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Hydrator{
		Applier: campaigns.Applier{Db: cfg.DB, Scripts: cfg.Scripts}, cfg: cfg, metrics: newHydratorMetrics(cfg.Registerer),
		generations: generations{db: cfg.DB, scripts: cfg.Scripts, log: cfg.Logger}, step: func(string) {},
	}, nil
}

// Hydrate brings a campaign into Redis, with its newest definition; when it is there already, just the latter. Those who ask
// for the same campaign at the same time share one go. Errors: models.ErrNotFound, ErrLost, and those of lua.Scripts.
func (h *Hydrator) Hydrate(ctx context.Context, campaignID string) (lua.Meta, error) {
	flight := h.flights.DoChan(campaignID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.Timeout)
		defer cancel()
		return h.hydrate(ctx, campaignID)
	})
	select {
	case got := <-flight:
		meta, _ := got.Val.(lua.Meta)
		return meta, got.Err
	case <-ctx.Done():
		return lua.Meta{}, fmt.Errorf("syncer: hydrate %s: %w", campaignID, context.Cause(ctx))
	}
}

// Recover is Hydrate for one who saw more of the campaign in Redis than is there now: first of all it has a Redis that went
// back take no more claims, then it takes down how far the campaign was. Errors as Hydrate.
func (h *Hydrator) Recover(ctx context.Context, campaignID string, seen lua.Position) (lua.Meta, error) {
	if seen == (lua.Position{}) {
		return h.Hydrate(ctx, campaignID)
	}
	state, err := h.Scripts.State(ctx, campaignID)
	if err == nil && (lua.Position{Epoch: state.Epoch, Seq: state.Seq}).Before(seen) {
		if err := h.Scripts.Fence(ctx, campaignID, state.Epoch); err != nil && !errors.Is(err, lua.ErrOther) {
			return lua.Meta{}, fmt.Errorf("syncer: campaign %s: %w", campaignID, err)
		}
		h.step("fenced")
	}
	if err := h.recordPosition(ctx, campaignID, seen); err != nil {
		return lua.Meta{}, err
	}
	return h.Hydrate(ctx, campaignID)
}

// takeDown records what was seen, if it is more than MySQL knows.
func (h *Hydrator) recordPosition(ctx context.Context, id string, seen lua.Position) error {
	c, err := campaigns.Read(h.Db.WithContext(ctx), id)
	switch {
	case err != nil:
		return err
	case c.Epoch < seen.Epoch: // MySQL was put back: its rows prove nothing
		reason := fmt.Sprintf("load %d was seen in redis, mysql knows load %d", seen.Epoch, c.Epoch)
		return lostUnless(h.lose(ctx, &c, reason), id, reason)
	case c.Epoch > seen.Epoch, seen.Seq <= max(c.SyncedSeq, c.SeenSeq):
		return nil
	}
	err = h.Db.WithContext(ctx).Exec("UPDATE campaigns SET seen_seq = ? WHERE id = ? AND epoch = ? AND seen_seq < ?",
		seen.Seq, id, seen.Epoch, seen.Seq).Error
	if err != nil {
		return fmt.Errorf("syncer: campaign %s: %w", id, err)
	}
	return nil
}

// hydrate takes several goes when the campaign leaves again before it was opened.
func (h *Hydrator) hydrate(ctx context.Context, id string) (meta lua.Meta, err error) {
	for range goesMost {
		meta, err = h.goOnce(ctx, id)
		if !errors.Is(err, lua.ErrAbsent) && !errors.Is(err, lua.ErrOther) && !errors.Is(err, campaigns.ErrMoved) {
			break
		}
	}
	return meta, err
}

func (h *Hydrator) goOnce(ctx context.Context, id string) (lua.Meta, error) {
	c, err := campaigns.Read(h.Db.WithContext(ctx), id)
	if err != nil {
		return lua.Meta{}, err
	}
	wrong := "it is not in redis by the books"
	if campaigns.IsResident(&c) {
		if wrong, err = h.Wrong(ctx, &c); err != nil {
			return lua.Meta{}, err
		}
	}
	if wrong != "" {
		if _, err := h.load(ctx, id, h.hydrateRound); err != nil {
			return lua.Meta{}, err
		}
	}
	if err := h.Apply(ctx, id); err != nil {
		return lua.Meta{}, err
	}
	h.step("opened")
	return h.Scripts.MetaOf(&c)
}

// wrong compares what Redis holds of a campaign that is resident by its books; "" is that nothing is wrong.
func (h *Hydrator) Wrong(ctx context.Context, c *models.Campaign) (string, error) {
	state, err := h.Scripts.State(ctx, c.ID)
	switch known := max(c.SyncedSeq, c.SeenSeq); {
	case errors.Is(err, lua.ErrAbsent):
		return fmt.Sprintf("redis does not hold load %d", c.Epoch), nil
	case errors.Is(err, lua.ErrDamaged):
		return err.Error(), nil
	case err != nil:
		return "", fmt.Errorf("syncer: hydrate %s: %w", c.ID, err)
	case state.Epoch != c.Epoch:
		return fmt.Sprintf("redis holds load %d, mysql knows load %d", state.Epoch, c.Epoch), nil
	case state.Status == models.StatusFenced:
		return fmt.Sprintf("load %d is fenced in redis", c.Epoch), nil
	case state.Seq < known:
		return fmt.Sprintf("redis went back: it holds %d claims, %d are known", state.Seq, known), nil
	case ForgotChange(c, &state):
		return fmt.Sprintf("redis went back: it works by definition %d, %d was in force", state.Version, c.AppliedVersion), nil
	}
	if why, err := h.forgotReleases(ctx, c, &state); err != nil || why != "" {
		return why, err
	}
	stream, _, err := h.generations.intact(ctx, c.Partition)
	if err != nil {
		return "", err
	}
	if c.StreamGeneration != stream.Generation {
		return "the claim stream lost entries since the campaign was loaded", nil
	}
	return "", nil
}

// forgotChange tells whether Redis works by an older definition than it once did. One that is being loaded has none yet. c was
// read before Redis.
func ForgotChange(c *models.Campaign, state *lua.State) bool {
	return state.Status != models.StatusLoading && state.Epoch == c.Epoch && state.Version < c.AppliedVersion
}
