package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"dibs/internal/audit"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/models/stored"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Registry is the list of consumer groups whose unread entries are
// kept. MySQL has the names, and each claim stream has the groups; each
// restores what the other lost. A Trimmer registers every group that it
// finds, and creates registered groups that a stream lacks. Any number
// of processes may share a registry.
type Registry struct {
	db      *gorm.DB
	groups  *lua.Scripts
	initial []string
}

// NewRegistry returns a Registry. An empty one
// registers initial, with models.GroupSyncer.
func NewRegistry(db *gorm.DB, groups *lua.Scripts, initial []string) *Registry {
	return &Registry{db: db, groups: groups, initial: initial}
}

// Names returns the names of the registered groups, sorted.
func (r *Registry) Names(ctx context.Context) ([]string, error) {
	names, err := r.read(ctx)
	// never removed, so the registry is empty
	if err == nil && !slices.Contains(names, models.GroupSyncer) {
		err = r.register(ctx, r.initial...)
		if err == nil {
			names, err = r.read(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("retention: registry of groups: %w", err)
	}
	return names, nil
}

func (r *Registry) read(ctx context.Context) (names []string, err error) {
	err = r.db.WithContext(ctx).Raw("SELECT name FROM consumer_groups ORDER BY name").Scan(&names).Error
	return names, err
}

func (r *Registry) register(ctx context.Context, names ...string) error {
	return sqlstore.InTx(ctx, r.db, func(tx *gorm.DB) error { return insertGroups(tx, names) })
}

func insertGroups(tx *gorm.DB, names []string) error {
	rows := make([]stored.ConsumerGroup, len(names))
	for i, name := range names {
		rows[i] = stored.ConsumerGroup{Name: name, RegisteredAt: sqlstore.Now()}
	}
	return tx.Clauses(clause.OnConflict{DoNothing: true}).Create(rows).Error
}

// errGroupGone rolls back the registration
// of a group that was removed in between.
var errGroupGone = errors.New("retention: its stream lacks the group")

// adopt registers a group that was found in a stream, if it still
// exists. Removals wait for the row of this transaction, and destroy
// the group before they commit.
func (r *Registry) adopt(ctx context.Context, partition int, name string) error {
	err := sqlstore.InTx(ctx, r.db, func(tx *gorm.DB) error {
		if err := insertGroups(tx, []string{name}); err != nil {
			return err
		}
		groups, err := r.groups.Groups(ctx, partition)
		if err != nil {
			return sqlstore.Final(err)
		}
		if !slices.ContainsFunc(groups, func(g lua.Group) bool { return g.Name == name }) {
			return sqlstore.Final(errGroupGone)
		}
		return nil
	})
	if errors.Is(err, errGroupGone) {
		return nil
	}
	return err
}

// create creates a registered group in a stream.
// The lock on its row blocks its removal.
func (r *Registry) create(ctx context.Context, partition int, name string) error {
	return sqlstore.InTx(ctx, r.db, func(tx *gorm.DB) error {
		registered, err := lockGroup(tx, name)
		if err != nil || !registered {
			return err
		}
		return sqlstore.Final(r.groups.NewGroup(ctx, partition, name))
	})
}

func lockGroup(tx *gorm.DB, name string) (registered bool, err error) {
	var rows []stored.ConsumerGroup
	err = tx.Clauses(clause.Locking{Strength: "UPDATE"}).Where("name = ?", name).Find(&rows).Error
	return len(rows) > 0, err
}

// Add registers a group, and creates it at the first entry of every
// claim stream. It reports whether the group is new.
func (r *Registry) Add(ctx context.Context, name string) (added bool, err error) {
	names, err := r.Names(ctx)
	if err != nil {
		return false, err
	}
	added = !slices.Contains(names, name)
	err = sqlstore.InTx(ctx, r.db, func(tx *gorm.DB) error {
		if err := insertGroups(tx, []string{name}); err != nil {
			return err
		}
		if _, err := lockGroup(tx, name); err != nil {
			return err
		}
		for p := range r.groups.Partitions() {
			if err := r.groups.NewGroup(ctx, p, name); err != nil {
				return sqlstore.Final(err)
			}
		}
		if !added {
			return nil
		}
		return audit.Put(ctx, tx, models.AuditGroupAdded, "", nil, map[string]string{"name": name})
	})
	if err != nil {
		return false, fmt.Errorf("retention: add group %q: %w", name, err)
	}
	return added, nil
}

// Remove removes a group from the registry and from every claim stream,
// so that its unread entries may be trimmed. After an error it is still
// registered, and streams that lost it get it again. Errors:
// models.ErrNotFound; models.ErrInUse while a process reads for it.
func (r *Registry) Remove(ctx context.Context, name string) error {
	for p := range r.groups.Partitions() {
		read, err := r.groups.IsRead(ctx, p, name)
		if err == nil && read {
			err = models.ErrInUse
		}
		if err != nil {
			return fmt.Errorf("retention: remove group %q: %w", name, err)
		}
	}
	err := sqlstore.InTx(ctx, r.db, func(tx *gorm.DB) error {
		registered, err := lockGroup(tx, name)
		if err != nil {
			return err
		}
		if !registered {
			return sqlstore.Final(models.ErrNotFound)
		}
		for p := range r.groups.Partitions() {
			if err := r.groups.DestroyGroup(ctx, p, name); err != nil {
				return sqlstore.Final(err)
			}
		}
		if err := tx.Delete(&stored.ConsumerGroup{Name: name}).Error; err != nil {
			return err
		}
		return audit.Put(ctx, tx, models.AuditGroupRemoved, "", map[string]string{"name": name}, nil)
	})
	if err != nil {
		return fmt.Errorf("retention: remove group %q: %w", name, err)
	}
	return nil
}

// List returns the registered groups and their lags, sorted by name.
func (r *Registry) List(ctx context.Context) ([]models.GroupLag, error) {
	names, err := r.Names(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]models.GroupLag, len(names))
	for i, name := range names {
		list[i].Name = name
	}
	for p := range r.groups.Partitions() {
		stream, err := r.groups.Stream(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("retention: list groups: %w", err)
		}
		groups, err := r.groups.Groups(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("retention: list groups: %w", err)
		}
		for i := range list {
			// if the stream lost the group
			lag := models.PartitionLag{Partition: p, Lag: stream.Length}
			if at := slices.IndexFunc(groups, func(g lua.Group) bool { return g.Name == list[i].Name }); at >= 0 {
				lag.Pending = groups[at].Pending
				lag.Lag = max(0, backlogOf(&groups[at], stream.Length)-lag.Pending)
			}
			list[i].Partitions = append(list[i].Partitions, lag)
		}
	}
	return list, nil
}
