package syncer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	"gorm.io/gorm"

	"dibs/lua"
	"dibs/models"
)

// hydrateTimeout bounds one hydration, whoever waits for it.
const hydrateTimeout = 10 * time.Second

// Hydrator brings campaigns that were never loaded into Redis. A first load takes four steps, each safe to repeat, by
// anybody, and none leads to a second full stock over claims in flight:
//
//  1. MySQL, where epoch is 0 and there are no claims, hands out the number of this attempt.
//  2. Redis takes the campaign, unless it is there, with that number as its epoch and a status that takes no claims.
//  3. MySQL sets epoch from 0 to the epoch that Redis holds. From here on a campaign that is absent is lost.
//  4. Redis takes the real status and version, if the epoch it holds is MySQL's.
//
// Who dies between 1 and 2 has used a number up. Between 2 and 3, or 3 and 4: the next who asks goes on where it ended; if
// Redis lost the copy meanwhile, no claim was lost with it: before 3 it is loaded again, after 3 the campaign waits to be
// rebuilt. A latecomer whose step 2 finds Redis empty after another's load was confirmed, claimed from and lost, leaves a
// copy with a number that MySQL does not have: step 4 never opens it.
type Hydrator struct {
	bringer
	flights singleflight.Group

	step func(name string) // tests only: called between the steps
}

// NewHydrator makes a hydrator over MySQL and Redis.
func NewHydrator(db *gorm.DB, scripts Scripts) *Hydrator {
	return &Hydrator{bringer: bringer{db: db, scripts: scripts}, step: func(string) {}}
}

// Hydrate brings a campaign that was never loaded into Redis, with its newest definition; when it is there already, just
// the latter. Those who ask for the same campaign at the same time share one go. Errors: models.ErrNotFound, ErrLost, and
// those of lua.Scripts.
func (h *Hydrator) Hydrate(ctx context.Context, campaignID string) (lua.Meta, error) {
	flight := h.flights.DoChan(campaignID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hydrateTimeout)
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

func (h *Hydrator) hydrate(ctx context.Context, id string) (lua.Meta, error) {
	c, err := getCampaign(h.db.WithContext(ctx), id)
	if err != nil {
		return lua.Meta{}, err
	}
	if c.Epoch == 0 {
		if err := h.firstLoad(ctx, &c); err != nil {
			return lua.Meta{}, err
		}
	}
	if err := h.bring(ctx, id); err != nil {
		return lua.Meta{}, err
	}
	h.step("opened")
	return h.scripts.MetaOf(&c)
}

// firstLoad takes steps 1 to 3. It returns nil also when somebody else was faster.
func (h *Hydrator) firstLoad(ctx context.Context, c *models.Campaign) error {
	state, err := h.scripts.State(ctx, c.ID)
	if errors.Is(err, lua.ErrAbsent) {
		if err := h.load(ctx, c); err != nil {
			return fmt.Errorf("syncer: hydrate %s: %w", c.ID, err)
		}
		state, err = h.scripts.State(ctx, c.ID)
	}
	if err != nil && !errors.Is(err, lua.ErrAbsent) { // absent again: bring knows what that means
		return fmt.Errorf("syncer: hydrate %s: %w", c.ID, err)
	}
	h.step("loaded")
	if state.Status != models.StatusLoading {
		return h.confirmed(ctx, c.ID)
	}
	confirm := h.db.WithContext(ctx).Exec("UPDATE campaigns SET epoch = ? WHERE id = ? AND epoch = 0 AND load_attempts >= ?",
		state.Epoch, c.ID, state.Epoch)
	if confirm.Error != nil {
		return fmt.Errorf("syncer: hydrate %s: %w", c.ID, confirm.Error)
	}
	h.step("confirmed")
	return h.confirmed(ctx, c.ID)
}

// load takes steps 1 and 2.
func (h *Hydrator) load(ctx context.Context, c *models.Campaign) error {
	attempt, err := h.attempt(ctx, c.ID)
	if err != nil || attempt == 0 {
		return err
	}
	h.step("numbered")
	held := *c
	held.Epoch, held.Version, held.Status = attempt, 0, models.StatusLoading
	_, err = h.scripts.Load(ctx, &held)
	return err
}

// attempt hands out the number of a load, or 0 when another's was confirmed just now. It fails with ErrLost when the
// campaign has claims, because then it was loaded before.
func (h *Hydrator) attempt(ctx context.Context, id string) (int64, error) {
	var n, epoch int64
	err := persist(ctx, triesMax, noNotice, func() error {
		return h.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			counted := tx.Exec("UPDATE campaigns SET load_attempts = load_attempts + 1 WHERE id = ? AND epoch = 0 AND synced_seq = 0"+
				" AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.campaign_id = ?)", id, id)
			if counted.Error != nil {
				return counted.Error
			}
			if err := tx.Raw("SELECT load_attempts, epoch FROM campaigns WHERE id = ?", id).Row().Scan(&n, &epoch); err != nil {
				return err
			}
			if counted.RowsAffected == 0 {
				n = 0
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return 0, err
	case n == 0 && epoch == 0:
		return 0, fmt.Errorf("%w: %s: it has claims and no epoch", ErrLost, id)
	}
	return n, nil
}

// confirmed returns nil if MySQL knows of a load, and ErrLost if not: then Redis holds a campaign from elsewhere.
func (h *Hydrator) confirmed(ctx context.Context, id string) error {
	c, err := getCampaign(h.db.WithContext(ctx), id)
	if err != nil {
		return err
	}
	if c.Epoch == 0 {
		return fmt.Errorf("%w: %s: redis holds a load that mysql does not know of", ErrLost, id)
	}
	return nil
}
