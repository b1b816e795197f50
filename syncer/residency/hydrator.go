package residency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"gorm.io/gorm"
)

const (
	hydrateTimeout = 2 * time.Minute        // for one hydration, however many wait for it; a million claims take a fraction of it
	loadLockFor    = 5 * time.Second        // a campaign waits so long for a loader that died
	proofWait      = 500 * time.Millisecond // a proof waits so long for claims that are on their way into MySQL

	lockPoll     = 10 * time.Millisecond
	proofPoll    = 10 * time.Millisecond
	roundsMost   = 8 // under one lock, while the books change
	loadsMost    = 8 // at once in a process: each holds a map of the campaign's users
	attemptsMost = 3 // of one hydration, while the campaign is evicted again
)

// Hydrator loads campaigns into Redis: those that were never there, those that were evicted, and those that Redis lost and
// that MySQL provably has in full. A load takes five steps. Each may be repeated by any process, and none can lead to a second
// stock beside claims that are on their way:
//
//  1. MySQL hands out the number of this load, unless the campaign is in Redis according to MySQL.
//  2. What MySQL holds of the campaign, by one snapshot, is staged in Redis beside what may be there.
//  3. Redis puts it in force in one step, with that number as its epoch and a status that takes no claims.
//  4. MySQL sets epoch and residency, if no claim got a row or was given up since the snapshot. From here on Redis decides, and a
//     campaign that is absent is lost.
//  5. Redis takes the real status and version, if the epoch it holds is MySQL's.
//
// A loader that dies before 3 leaves staged records, which the next loader deletes. Between 3 and 5 the next one goes on, or loads
// again: nothing is claimed before 5. A late loader, whose step 3 finds Redis empty after another load was confirmed, claimed
// from and lost, leaves a copy with a number that MySQL does not have: step 5 never opens it.
type Hydrator struct {
	db      *gorm.DB
	scripts campaigns.Scripts
	log     *slog.Logger
	applier campaigns.Applier
	streams streams
	seconds prometheus.Histogram // of loads
	flights singleflight.Group
	loads   chan struct{} // holds a token for each load of claims that is under way
	firsts  firsts
	steps   steps.Steps

	lots   sync.Map // chan struct{} by campaign of several shards: holds a token while a lot of it is loaded
	mu     sync.Mutex
	fenced map[string]fencedAt // by the id of a lost campaign
}

// NewHydrator makes a hydrator; with a nil Registerer it has no metrics.
func NewHydrator(db *gorm.DB, scripts campaigns.Scripts, log *slog.Logger, reg prometheus.Registerer) *Hydrator {
	h := &Hydrator{
		db: db, scripts: scripts, log: log, streams: streams{
			db: db, scripts: scripts, log: log, lost: newEntriesLost(reg), looks: new(singleflight.Group),
		},
		seconds: newRebuildSeconds(reg),
		loads:   make(chan struct{}, loadsMost), fenced: make(map[string]fencedAt),
	}
	h.applier = campaigns.NewApplier(db, scripts, &h.steps)
	h.firsts.h = h
	return h
}

// Reasons that name an effect begin so, or have this in them: who finds the cause puts it in their place, see recordLost.
const mysqlKnowsLoad, notHeld, isFenced = "mysql knows load ", "redis does not hold load ", "redis has fenced load "

// Hydrate loads a campaign into Redis with its newest definition; when Redis holds it already, it sends just the definition. Callers
// that ask for one campaign at the same time share one load, and first loads of different campaigns share their statements. Errors:
// models.ErrNotFound, campaigns.ErrLost, campaigns.ErrPartitions, and those of lua.Scripts.
func (h *Hydrator) Hydrate(ctx context.Context, campaignID string) (lua.Meta, error) {
	flight := h.flights.DoChan(campaignID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hydrateTimeout)
		defer cancel()
		if meta := h.firsts.load(ctx, campaignID); meta != nil {
			return *meta, nil
		}
		return h.hydrate(ctx, campaignID)
	})
	select {
	case got := <-flight:
		meta, _ := got.Val.(lua.Meta)
		return meta, got.Err
	case <-ctx.Done():
		return lua.Meta{}, fmt.Errorf("residency: hydrate %s: %w", campaignID, context.Cause(ctx))
	}
}

// Recover is Hydrate for a caller that saw more of the campaign in Redis than is there now, and records in MySQL how far it was.
// Errors as Hydrate.
func (h *Hydrator) Recover(ctx context.Context, campaignID string, seen lua.Position) (lua.Meta, error) {
	if seen != (lua.Position{}) {
		if err := h.recordPosition(ctx, campaignID, seen); err != nil {
			return lua.Meta{}, err
		}
	}
	return h.Hydrate(ctx, campaignID)
}

// recordPosition records in MySQL what was seen in Redis, if it is more than MySQL knows.
func (h *Hydrator) recordPosition(ctx context.Context, id string, seen lua.Position) error {
	c, err := campaigns.Read(h.db.WithContext(ctx), id)
	switch {
	case err != nil:
		return err
	case c.Epoch < seen.Epoch: // MySQL was restored: its rows prove nothing
		reason := fmt.Sprintf("load %d was seen in redis, "+mysqlKnowsLoad+"%d", seen.Epoch, c.Epoch)
		return lostUnless(h.lose(ctx, &c, reason), id, reason)
	case c.Epoch > seen.Epoch, seen.Seq <= max(c.SyncedSeq, c.SeenSeq):
		return nil
	}
	if err := h.streams.see(ctx, id, seen); err != nil {
		return fmt.Errorf("residency: campaign %s: %w", id, err)
	}
	return nil
}

// hydrate tries again when the campaign is evicted before it was opened.
func (h *Hydrator) hydrate(ctx context.Context, id string) (meta lua.Meta, err error) {
	for range attemptsMost {
		meta, err = h.hydrateOnce(ctx, id)
		if !errors.Is(err, lua.ErrAbsent) && !errors.Is(err, lua.ErrOther) && !errors.Is(err, campaigns.ErrMoved) {
			break
		}
	}
	return meta, err
}

func (h *Hydrator) hydrateOnce(ctx context.Context, id string) (lua.Meta, error) {
	c, err := campaigns.Read(h.db.WithContext(ctx), id)
	if err != nil {
		return lua.Meta{}, err
	}
	if c.IsSharded() { // its shards are loaded, each by itself
		return h.scripts.MetaOf(&c)
	}
	wrong := "it is not in redis by the books"
	if campaigns.IsResident(&c) {
		wrong, err = h.Wrong(ctx, &c)
		if err != nil {
			return lua.Meta{}, err
		}
	}
	if wrong != "" {
		if _, err := h.load(ctx, id, h.hydrateRound); err != nil {
			return lua.Meta{}, err
		}
	}
	if err := h.applier.Apply(ctx, id); err != nil {
		return lua.Meta{}, err
	}
	h.steps.At("opened")
	return h.scripts.MetaOf(&c)
}

// Wrong says what is wrong with what Redis holds of a campaign that is resident by its books; "" is nothing. Errors: those of
// lua.Scripts and of the database.
func (h *Hydrator) Wrong(ctx context.Context, c *models.Campaign) (string, error) {
	known, err := h.known(ctx, c)
	if err != nil {
		return "", err
	}
	state, err := h.scripts.State(ctx, c.ID)
	held := state.Position()
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return fmt.Sprintf(notHeld+"%d", c.Epoch), nil
	case errors.Is(err, lua.ErrDamaged):
		return err.Error(), nil
	case err != nil:
		return "", fmt.Errorf("residency: hydrate %s: %w", c.ID, err)
	case held.Epoch > known.Epoch:
		return fmt.Sprintf("redis holds load %d, "+mysqlKnowsLoad+"%d", held.Epoch, known.Epoch), nil
	case held.Behind(known) != "":
		return "redis was rolled back: " + held.Behind(known), nil
	case state.Status == models.StatusFenced:
		return fmt.Sprintf(isFenced+"%d", c.Epoch), nil
	}
	seen, err := h.streams.intact(ctx, c.Partition)
	if err != nil {
		return "", err
	}
	if c.StreamGeneration != seen.stream.Generation {
		return cmp.Or(seen.row.Loss, "the claim stream lost entries since the campaign was loaded"), nil
	}
	return "", nil
}
