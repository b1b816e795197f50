package campaigns

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"dibs/internal/split"
	"dibs/internal/sqlstore"
	"dibs/models"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// errRaced reports that another transaction was first. A retry may succeed.
var errRaced = errors.New("campaigns: packets: another change came first")

// AddPackets inserts all packets of a batch or none, and sends
// them to Redis; the syncer retries. A repeated request gets
// the same answer: a list is recognized by its content, any
// request by its key. Errors: models.ErrNotFound,
// models.ErrClosed, models.ErrKeyMismatch, *models.FieldError.
func (r *Repository) AddPackets(ctx context.Context, id string, batch models.PacketBatch) (models.AddedPackets, error) {
	b, err := newPacketBatch(id, &batch)
	if err != nil {
		return models.AddedPackets{}, err
	}
	if _, err := r.sender.Known(ctx, id); err != nil {
		return models.AddedPackets{}, fmt.Errorf("campaigns: packets of %s: %w", id, err)
	}
	var added models.AddedPackets
	err = sqlstore.Retry(ctx, func() (err error) {
		added, err = r.addPackets(ctx, b)
		return err
	})
	if err != nil {
		return models.AddedPackets{}, fmt.Errorf("campaigns: packets of %s: %w", id, err)
	}
	r.applyPackets(ctx, id)
	return added, nil
}

// applyPackets sends new packets to Redis.
// After a failure the syncer retries.
func (r *Repository) applyPackets(ctx context.Context, id string) {
	c, err := r.Get(ctx, id)
	if err == nil {
		err = r.send(ctx, &c)
	}
	if err != nil {
		r.log.LogAttrs(ctx, slog.LevelWarn, "packets are in mysql, redis did not take them: the syncer sends them again",
			slog.String("campaign_id", id), slog.Any("error", err))
	}
}

type packetBatch struct {
	campaignID string
	shards     int             // of the campaign
	after      int64           // the highest position of its packets before
	list       []models.Packet // of a list
	amounts    []int64         // of a split, in minor units; positions give the ids
	sum        int64
	release    *time.Time
	requestKey string
	digest     string
}

func (b *packetBatch) count() int64 { return int64(len(b.list) + len(b.amounts)) }

// newPacketBatch checks a batch without its
// campaign. It draws a split once for all tries.
func newPacketBatch(campaignID string, asked *models.PacketBatch) (*packetBatch, error) {
	b := &packetBatch{campaignID: campaignID, list: asked.List, release: milliseconds(asked.ReleaseAt)}
	switch {
	case asked.Split == nil:
		if err := asked.CheckList(); err != nil {
			return nil, err
		}
		for i := range asked.List {
			b.sum += asked.List[i].Amount
		}
	case asked.List != nil:
		return nil, &models.FieldError{Field: "packets", Reason: "must be left out of a split"}
	default:
		var err error
		b.amounts, err = amountsOf(asked.Split)
		if err != nil {
			return nil, err
		}
		b.sum = asked.Split.Amount
	}
	b.digest = digestOfBatch(asked, b.release)
	switch {
	case asked.Key != "":
		sum := sha256.Sum256([]byte("key\x00" + asked.Key))
		b.requestKey = hex.EncodeToString(sum[:])
	case asked.Split == nil:
		b.requestKey = b.digest
	default: // a retry then recognizes an unknown commit
		token, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("campaigns: packets: %w", err)
		}
		b.requestKey = token.String()
	}
	return b, nil
}

func amountsOf(s *models.Split) ([]int64, error) {
	if s.Amount > models.AmountMax {
		return nil, &models.FieldError{Field: "amount", Reason: fmt.Sprintf("must be 1 to %d", models.AmountMax)}
	}
	count := int(min(s.Count, split.CountMax+1))
	amounts, err := split.Split(split.Request{Count: count, Amount: s.Amount, Min: s.Min, Max: s.Max, Method: split.Method(s.Method)})
	if refused, is := errors.AsType[*split.RequestError](err); is {
		return nil, &models.FieldError{Field: refused.Field, Reason: refused.Reason}
	}
	if err != nil {
		return nil, fmt.Errorf("campaigns: packets: %w", err)
	}
	return amounts, nil
}

// digestOfBatch returns a digest of a request.
// A list and a split never share one.
func digestOfBatch(asked *models.PacketBatch, release *time.Time) string {
	h := sha256.New()
	at := int64(0)
	if release != nil {
		at = release.UnixMilli()
	}
	if s := asked.Split; s != nil {
		_, _ = fmt.Fprintf(h, "split\n%t %d\n%d %d %d %d %s", release != nil, at, s.Count, s.Amount, s.Min, s.Max, s.Method)
		return hex.EncodeToString(h.Sum(nil))
	}
	_, _ = fmt.Fprintf(h, "list\n%t %d\n", release != nil, at)
	line := make([]byte, 0, 128)
	for i := range asked.List {
		line = append(append(line[:0], asked.List[i].ID...), ' ')
		line = append(strconv.AppendInt(line, asked.List[i].Amount, 10), '\n')
		_, _ = h.Write(line) // a hash takes anything
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (r *Repository) addPackets(ctx context.Context, b *packetBatch) (models.AddedPackets, error) {
	db := r.db.WithContext(ctx)
	added, err := knownBatch(db, b)
	if err != nil || added.Replayed {
		return added, err
	}
	c, err := r.Get(ctx, b.campaignID)
	if err != nil {
		return added, finalIfNotFound(err)
	}
	if err := b.fits(db, &c); err != nil {
		return added, err
	}
	b.shards = c.Shards
	err = b.commit(ctx, db, c.Total)
	if sqlstore.FailureOf(err) == sqlstore.FailureDuplicate {
		return b.whyDuplicate(db)
	}
	return models.AddedPackets{Count: b.count(), Amount: b.sum}, err
}

func finalIfNotFound(err error) error {
	if errors.Is(err, models.ErrNotFound) {
		return sqlstore.Final(err)
	}
	return err
}

func knownBatch(db *gorm.DB, b *packetBatch) (known models.AddedPackets, err error) {
	byContent := ""
	if b.list != nil {
		byContent = b.digest
	}
	var rows []struct {
		Packets, Amount int64
		Digest          string
	}
	err = db.Raw("SELECT packets, amount, digest FROM packet_batches WHERE campaign_id = ? AND (request_key = ? OR digest = ?)",
		b.campaignID, b.requestKey, byContent).Scan(&rows).Error
	if err != nil {
		return models.AddedPackets{}, err
	}
	for i := range rows {
		if rows[i].Digest != b.digest {
			return models.AddedPackets{}, sqlstore.Final(models.ErrKeyMismatch)
		}
		known = models.AddedPackets{Count: rows[i].Packets, Amount: rows[i].Amount, Replayed: true}
	}
	return known, nil
}

func (b *packetBatch) fits(db *gorm.DB, c *models.Campaign) error {
	switch {
	case c.Kind != models.KindPacket:
		return refusal("kind", "of the campaign is %s, which has no packets", c.Kind)
	case c.Status == models.StatusClosed:
		return sqlstore.Final(fmt.Errorf("%w: %s", models.ErrClosed, c.ID))
	case c.Total+b.count() > models.PacketsMax:
		return refusal(b.field("packets", "count"), "of a campaign may be %d, it has %d already", models.PacketsMax, c.Total)
	}
	var sum, otherWaves int64
	err := db.Raw("SELECT COALESCE(SUM(amount), 0), COUNT(DISTINCT CASE WHEN release_at <> ? THEN release_at END)"+
		" FROM packet_batches WHERE campaign_id = ?", releaseText(b.release), c.ID).Row().Scan(&sum, &otherWaves)
	if err != nil {
		return err
	}
	if b.release != nil && otherWaves >= models.WavesMax {
		return refusal("release_at", "may have %d values in a campaign", models.WavesMax)
	}
	err = db.Raw("SELECT COALESCE(MAX(position), 0) FROM packets WHERE campaign_id = ?", c.ID).Row().Scan(&b.after)
	if err != nil {
		return err
	}
	if sum+b.sum > models.AmountMax {
		return refusal(b.field("packets", "amount"), "makes all packets of the campaign more than %d", models.AmountMax)
	}
	return nil
}

func refusal(field, format string, args ...any) error {
	return sqlstore.Final(&models.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
}

// field returns the name of a field: ofList in a list, ofSplit in a split.
func (b *packetBatch) field(ofList, ofSplit string) string {
	if b.list != nil {
		return ofList
	}
	return ofSplit
}

// ReleaseMs is a time of release in Redis, in ms since 1970; 0 is at once.
func ReleaseMs(at sql.NullTime) int64 {
	if !at.Valid {
		return 0
	}
	return max(1, at.Time.UnixMilli())
}
