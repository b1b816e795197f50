package campaigns

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"dibs/internal/audit"
	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/parking"
	"dibs/syncer/settings"
	"dibs/syncer/tables"

	"gorm.io/gorm"
)

// Repository stores definitions in MySQL,
// their authority, and sends changes to Redis.
type Repository struct {
	db         *gorm.DB
	sender     Sender
	partitions int
	settler    Settler
	log        *slog.Logger
}

// New returns the repository. It sends committed changes to scripts.
func New(db *gorm.DB, scripts *lua.Scripts, log *slog.Logger) *Repository {
	sender := NewSender(db, scripts, &steps.Steps{})
	return &Repository{db: db, sender: sender, partitions: scripts.Partitions(), log: log}
}

type campaignRow struct {
	models.Campaign `gorm:"embedded"`

	CreatedDigest string
}

// Create stores a campaign and returns it as stored. created is false
// if the same definition exists already, as created or as it is now.
// Redis gets the campaign with its first claim. Errors:
// *models.FieldError, models.ErrExists, settings.ErrPartitions.
func (r *Repository) Create(ctx context.Context, c models.Campaign) (stored models.Campaign, created bool, err error) {
	c = r.initialized(c)
	if err := c.Validate(); err != nil {
		return models.Campaign{}, false, err
	}
	if err := settings.SamePartitions(ctx, r.db, r.partitions); err != nil {
		return models.Campaign{}, false, err
	}
	if err := r.sender.awaitKnown(ctx, c.ID, c.Shards); err != nil {
		return models.Campaign{}, false, err
	}
	digest, err := digestOf(&c)
	if err != nil {
		return models.Campaign{}, false, err
	}
	err = sqlstore.InTx(ctx, r.db, func(tx *gorm.DB) (err error) {
		definition := models.DefinitionOf(&c, digest)
		created, err = tables.Define(tx, &definition, r.partitions)
		if err != nil || !created {
			return err
		}
		return audit.Put(ctx, tx, models.AuditCampaignCreated, c.ID, nil, c.DefinitionJSON())
	})
	if err != nil {
		return models.Campaign{}, false, fmt.Errorf("campaigns: create %s: %w", c.ID, err)
	}
	stored, err = r.stored(ctx, &c, digest)
	return stored, created && err == nil, err
}

func (r *Repository) initialized(c models.Campaign) models.Campaign {
	c = c.WithoutBooks()
	c.Status = cmp.Or(c.Status, models.StatusOpen)
	c.TimeZone = cmp.Or(c.TimeZone, "UTC")
	c.StartsAt = milliseconds(c.StartsAt)
	c.EndsAt = milliseconds(c.EndsAt)
	c.Partition = lua.PartitionOf(c.ID, r.partitions)
	c.Shards = max(1, c.Shards)
	c.HoldMaxMs = cmp.Or(c.HoldMaxMs, usualHoldMax(&c))
	c.Version = 1
	c.Changes = 1
	c.Residency = models.ResidencyNone
	c.Remaining = c.Total
	return c
}

// stored returns the campaign with c's id, or models.ErrExists if it differs.
func (r *Repository) stored(ctx context.Context, c *models.Campaign, digest string) (models.Campaign, error) {
	var row campaignRow
	if err := r.db.WithContext(ctx).Table(c.TableName()).Where("id = ?", c.ID).Take(&row).Error; err != nil {
		return models.Campaign{}, notFound(err, c.ID)
	}
	if row.CreatedDigest == digest {
		return row.Campaign, nil
	}
	now, err := digestOf(&row.Campaign)
	if err != nil {
		return models.Campaign{}, err
	}
	if now != digest {
		return models.Campaign{}, fmt.Errorf("campaigns: %w: campaign %s", models.ErrExists, c.ID)
	}
	return row.Campaign, nil
}

func usualHoldMax(c *models.Campaign) int64 { return min(2*c.HoldForMs, models.HoldMax.Milliseconds()) }

func digestOf(c *models.Campaign) (string, error) {
	d := c.WithoutBooks()
	d.StartsAt = milliseconds(d.StartsAt)
	d.EndsAt = milliseconds(d.EndsAt)
	if d.HoldMaxMs == usualHoldMax(&d) {
		d.HoldMaxMs = 0
	}
	text, err := json.Marshal(d) //nolint:musttag // the names of the fields will do
	if err != nil {
		return "", fmt.Errorf("campaigns: campaign %s: %w", c.ID, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// milliseconds cuts a time to MySQL's precision, in UTC.
func milliseconds(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	cut := t.UTC().Truncate(time.Millisecond)
	return &cut
}

// Get reads a campaign. Errors: models.ErrNotFound.
func (r *Repository) Get(ctx context.Context, id string) (models.Campaign, error) {
	return Read(r.db.WithContext(ctx), id)
}

// Read reads a campaign or shard, in a transaction if db is one.
// Errors: models.ErrNotFound.
func Read(db *gorm.DB, id string) (models.Campaign, error) {
	var c models.Campaign
	if err := db.Where("id = ?", id).Take(&c).Error; err != nil {
		return models.Campaign{}, notFound(err, id)
	}
	return c, nil
}

var orders = map[models.CampaignSort]string{
	models.SortByID: "id", "": "id", models.SortByBusy: "claimed = 0, updated_at DESC, id",
	models.SortByLeft: "remaining, id", models.SortByTotal: "total DESC, id",
	models.SortByClaimed: "claimed DESC, id", models.SortByStatus: "status, id",
}

// likeText escapes a text for LIKE, with ! as the escape.
var likeText = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_") //nolint:gochecknoglobals // a constant

// List reads the campaigns of a query. Ids are ordered byte for byte.
func (r *Repository) List(ctx context.Context, q models.CampaignQuery) ([]models.Campaign, error) {
	var page []models.Campaign
	find := r.selected(ctx, &q)
	if err := find.Order(orders[q.Sort]).Offset(q.Offset).Limit(q.Limit).Find(&page).Error; err != nil {
		return nil, fmt.Errorf("campaigns: list campaigns: %w", err)
	}
	return page, nil
}

// Count counts the campaigns of a query, without its offset and limit.
func (r *Repository) Count(ctx context.Context, q models.CampaignQuery) (n int64, err error) {
	if err := r.selected(ctx, &q).Count(&n).Error; err != nil {
		return 0, fmt.Errorf("campaigns: count campaigns: %w", err)
	}
	return n, nil
}

func (r *Repository) selected(ctx context.Context, q *models.CampaignQuery) *gorm.DB {
	find := r.db.WithContext(ctx).Model(&models.Campaign{}).Where("shard = 0")
	if q.After != "" {
		find = find.Where("id > ?", q.After)
	}
	if q.Status != "" {
		find = find.Where("status = ?", q.Status)
	}
	if q.Text != "" {
		like := "%" + likeText.Replace(q.Text) + "%"
		find = find.Where("(LOWER(id) LIKE LOWER(?) ESCAPE '!' OR LOWER(name) LIKE LOWER(?) ESCAPE '!')", like, like)
	}
	return find
}

// Books reads a campaign's counters in one statement, sent at At by
// this process' clock. Errors: models.ErrNotFound.
func (r *Repository) Books(ctx context.Context, id string) (models.Books, error) {
	at := time.Now().UTC()
	var c models.Campaign
	err := r.db.WithContext(ctx).Table("campaigns").
		Select("claimed", "synced_seq", "remaining", "released_claims", "version", "applied_version", "total",
			"low_stock_at", "residency", "epoch", "shards", "sold", "lost_claims", "lost_units", "given_up_units").
		Where("id = ?", id).Take(&c).Error
	if err != nil {
		return models.Books{}, notFound(err, id)
	}
	// After the counters: a claim written in
	// between is missing, but not counted twice.
	c.ID = id
	parked, err := readParked(ctx, r.db, &c)
	if err != nil {
		return models.Books{}, err
	}
	books := BooksOf(&c, parked)
	books.At = at
	return books, nil
}

// BooksOf returns a campaign's counters with its parked claims, without a
// time.
func BooksOf(c *models.Campaign, parked *parking.Claims) models.Books {
	books := models.Books{
		Claimed: c.Claimed, SyncedSeq: c.SyncedSeq, Remaining: c.Remaining, Released: c.ReleasedClaims,
		Version: c.Version, AppliedVersion: c.AppliedVersion, ParkedClaims: parked.Claims, ParkedUnits: parked.Units,
		InRedis: IsResident(c), Total: c.Total, LowStockAt: c.LowStockAt, Sold: c.Sold,
		LostClaims: c.LostClaims, LostUnits: c.LostUnits, GivenUpUnits: c.GivenUpUnits,
	}
	if c.IsSharded() {
		books.Shards = c.Shards
	}
	return books
}

func notFound(err error, id string) error {
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return fmt.Errorf("campaigns: %w: campaign %s", models.ErrNotFound, id)
	}
	return fmt.Errorf("campaigns: campaign %s: %w", id, err)
}
