package campaigns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"

	"gorm.io/gorm"
)

// ErrLost says that a campaign was in Redis before and is not there now, or not as MySQL knows it. Nothing is claimed until
// it is rebuilt: what users took since then may not be in MySQL yet.
var ErrLost = errors.New("syncer: campaign lost from redis")

// errMoved is an ErrLost that need not be a loss: the campaign came or went while it was looked at.
var ErrMoved = fmt.Errorf("%w: or on the move", ErrLost)

// Scripts is the part of lua.Scripts that brings campaigns to Redis.
type Scripts interface { //nolint:interfacebloat // one for each verb that it uses
	Adjust(ctx context.Context, c *models.Campaign) (lua.State, error)
	Push(ctx context.Context, campaignID string, p *lua.Push) (pushed int64, err error)
	State(ctx context.Context, campaignID string) (lua.State, error)
	MetaOf(c *models.Campaign) (lua.Meta, error)
	Fence(ctx context.Context, campaignID string, epoch int64) error
	Evict(ctx context.Context, campaignID string, seen lua.Position, idle time.Duration) (evicted bool, err error)
	EvictedAt(ctx context.Context, campaignID string) (lua.Position, error)
	Forget(ctx context.Context, campaignID string, seen lua.Position) error
	NewRebuild(ctx context.Context, c *models.Campaign, after int64, replace bool) (*lua.Rebuild, error)
	LockCampaign(ctx context.Context, campaignID string, ttl time.Duration) (*lua.Lock, error)
	Stream(ctx context.Context, partition int) (lua.Stream, error)
	Unread(ctx context.Context, partition int, group string) (lua.Unread, error)
	NewGeneration(ctx context.Context, partition int) (string, error)
	SetGeneration(ctx context.Context, partition int, generation string) error
	LockGeneration(ctx context.Context, partition int, ttl time.Duration) (*lua.Lock, error)
	Release(ctx context.Context, c *models.Campaign, releases []lua.Release) ([]lua.Released, error)
	Now(ctx context.Context) (time.Time, error)
	Append(ctx context.Context, campaignID, eventID string, payload []byte) error
	Partitions() int
}

var _ Scripts = (*lua.Scripts)(nil)

// bringer brings the newest definition of a campaign to Redis. It may run any number of times, anywhere, at once.
type Applier struct {
	Db      *gorm.DB
	Scripts Scripts

	PushStep func() // tests only: called after each run of packets
}

// bring compares Redis with MySQL and tells Redis what is newer. The campaign has an epoch. Errors: ErrLost,
// models.ErrNotFound, and those of lua.Scripts.
func (b Applier) Apply(ctx context.Context, id string) error {
	c, err := Read(b.Db.WithContext(ctx), id)
	if err == nil {
		err = b.SamePlace(&c)
	}
	if err != nil {
		return err
	}
	if !IsResident(&c) {
		return fmt.Errorf("%w: %s: it is %s", ErrMoved, id, c.Residency)
	}
	state, err := b.Scripts.State(ctx, id)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return fmt.Errorf("%w: %s: epoch %d was loaded, nothing is there", ErrMoved, id, c.Epoch)
	case err != nil:
		return fmt.Errorf("syncer: campaign %s: %w", id, err)
	case state.Epoch != c.Epoch:
		return fmt.Errorf("%w: %s: redis holds epoch %d, mysql knows epoch %d", ErrMoved, id, state.Epoch, c.Epoch)
	}
	if c.Kind == models.KindPacket && state.Pushed < c.Total {
		if err := b.push(ctx, &c, state.Pushed); err != nil { // before the version, which says that Redis knows them
			return err
		}
	}
	if state.Version < c.Version {
		if _, err := b.Scripts.Adjust(ctx, &c); err != nil {
			return fmt.Errorf("syncer: campaign %s: %w", id, err)
		}
	}
	if c.AppliedVersion == c.Version {
		return nil
	}
	return b.markApplied(ctx, &c)
}

// settle is the second transaction of a change: Redis works by c's version now, so remaining is exact again. When another
// change has come meanwhile, remaining waits for that one's.
func (b Applier) markApplied(ctx context.Context, c *models.Campaign) error {
	err := sqlstore.Retry(ctx, func() error {
		return b.Db.WithContext(ctx).Exec("UPDATE campaigns SET"+
			" remaining = CASE WHEN version <> ? THEN remaining WHEN total > claimed THEN total - claimed ELSE 0 END,"+
			" applied_version = CASE WHEN applied_version < ? THEN ? ELSE applied_version END WHERE id = ?",
			c.Version, c.Version, c.Version, c.ID).Error
	})
	if err != nil {
		return fmt.Errorf("syncer: settle %s: %w", c.ID, err)
	}
	return nil
}

// isResident: books from before there was a residency have an epoch only.
func IsResident(c *models.Campaign) bool {
	return c.Residency == models.ResidencyResident || c.Residency == models.ResidencyNone && c.Epoch > 0
}
