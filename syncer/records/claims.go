package records

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/campaigns"

	"gorm.io/gorm"
)

// maxParkedOf bounds a user's parked claims in
// memory. There are none except after a fault.
const maxParkedOf = 1000

// Claims reads claims from MySQL.
type Claims struct{ db *gorm.DB }

// NewClaims returns a reader.
func NewClaims(db *gorm.DB) *Claims { return &Claims{db: db} }

type claimLine struct {
	stored.ClaimRow `gorm:"embedded"`

	Currency  string
	HoldForMs int64
}

func claimLines(db *gorm.DB) *gorm.DB {
	return db.Table("claims c").Joins("LEFT JOIN campaigns k ON k.id = c.campaign_id").
		Select("c.*, k.currency, k.hold_for_ms")
}

// Claim reads a claim as it is now, or as accepted if it is parked.
// Errors: models.ErrNotFound.
func (r *Claims) Claim(ctx context.Context, id string) (models.Claim, error) {
	var line claimLine
	err := claimLines(r.db.WithContext(ctx)).Where("c.id = ?", id).Take(&line).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return r.parked(ctx, id)
	}
	if err != nil {
		return models.Claim{}, fmt.Errorf("records: claim %s: %w", id, err)
	}
	return line.Claim(line.Currency, line.HoldForMs), nil
}

const idsPerQuery = 1000

// Committed returns those of the claims that have a row.
func (r *Claims) Committed(ctx context.Context, ids []string) (there []string, err error) {
	for some := range slices.Chunk(ids, idsPerQuery) {
		var found []string
		const query = "SELECT id FROM claims WHERE id IN ? UNION ALL SELECT id FROM claims_archive WHERE id IN ?"
		if err := r.db.WithContext(ctx).Raw(query, some, some).Scan(&found).Error; err != nil {
			return there, fmt.Errorf("records: committed claims: %w", err)
		}
		there = append(there, found...)
	}
	return there, nil
}

type parkedLine struct {
	Payload   []byte
	HoldForMs int64
}

func parkedLines(db *gorm.DB) *gorm.DB {
	return db.Table("parked_events p").Joins("LEFT JOIN lots l ON l.id = p.campaign_id").
		Joins("LEFT JOIN definitions d ON d.campaign_id = l.campaign_id").Select("p.payload, d.hold_for_ms").Where("p.discarded_at IS NULL")
}

// claim returns the claim of a parked event, which was accepted.
func (l *parkedLine) claim() (c models.Claim, is bool) {
	e, err := event.Decode(l.Payload)
	if err != nil || e.Type != event.ClaimAccepted {
		return c, false
	}
	c = e.Claim(l.HoldForMs)
	c.Status = models.ClaimParked
	return c, true
}

func (r *Claims) parked(ctx context.Context, id string) (models.Claim, error) {
	var line parkedLine
	err := parkedLines(r.db.WithContext(ctx)).Where("p.id = ?", id).Take(&line).Error
	switch {
	case errors.Is(err, gorm.ErrRecordNotFound):
		return models.Claim{}, fmt.Errorf("records: %w: claim %s", models.ErrNotFound, id)
	case err != nil:
		return models.Claim{}, fmt.Errorf("records: claim %s: %w", id, err)
	}
	c, is := line.claim()
	if !is || c.ID != id {
		return models.Claim{}, fmt.Errorf("records: %w: claim %s", models.ErrNotFound, id)
	}
	return c, nil
}

func (r *Claims) parkedOf(ctx context.Context, q models.ClaimsQuery) (claims []models.Claim, err error) {
	find := parkedLines(r.db.WithContext(ctx)).
		Where("p.user_id = ? AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.id = p.id)", q.UserID)
	if q.CampaignID != "" {
		find = find.Where("COALESCE(l.campaign_id, p.campaign_id) = ?", q.CampaignID)
	}
	var lines []parkedLine
	if err := find.Limit(maxParkedOf).Find(&lines).Error; err != nil {
		return nil, fmt.Errorf("records: claims of a user: %w", err)
	}
	for i := range lines {
		c, is := lines[i].claim()
		if is && (q.After == (models.ClaimPlace{}) || models.PlaceOf(&c).Compare(q.After) > 0) {
			claims = append(claims, c)
		}
	}
	return claims, nil
}

// ClaimsOf reads a page of a user's claims, with parked ones, newest first.
func (r *Claims) ClaimsOf(ctx context.Context, q models.ClaimsQuery) ([]models.Claim, error) {
	var lines []claimLine
	if err := findClaims(r.db.WithContext(ctx), q).Find(&lines).Error; err != nil {
		return nil, fmt.Errorf("records: claims of a user: %w", err)
	}
	claims := make([]models.Claim, len(lines))
	for i := range lines {
		claims[i] = lines[i].Claim(lines[i].Currency, lines[i].HoldForMs)
	}
	parked, err := r.parkedOf(ctx, q)
	if err != nil || len(parked) == 0 {
		return claims, err
	}
	claims = slices.Concat(claims, parked)
	slices.SortFunc(claims, func(a, b models.Claim) int { return models.PlaceOf(&a).Compare(models.PlaceOf(&b)) })
	return claims[:min(len(claims), q.Limit)], nil
}

// ClaimsOfCampaign reads a page of a campaign's written claims, newest
// first, by shard. q.After may be archived by now. Errors: models.ErrNotFound
// without a campaign, models.ErrID if q.After is not its claim.
func (r *Claims) ClaimsOfCampaign(ctx context.Context, q models.CampaignClaimsQuery) ([]models.Claim, error) {
	db := r.db.WithContext(ctx)
	find := claimLines(db).Where("c.campaign_id = ?", q.CampaignID)
	if q.Status != "" {
		find = find.Where("c.status = ?", q.Status)
	}
	if q.After != "" {
		var last stored.ClaimRow
		const query = "SELECT id, shard, seq FROM claims WHERE id = ? AND campaign_id = ?" +
			" UNION ALL SELECT id, shard, seq FROM claims_archive WHERE id = ? AND campaign_id = ?"
		err := db.Raw(query, q.After, q.CampaignID, q.After, q.CampaignID).Scan(&last).Error
		if err != nil {
			return nil, fmt.Errorf("records: claims of a campaign: %w", err)
		}
		if last.ID == "" {
			return nil, fmt.Errorf("records: %w: claim %s is not of the campaign", models.ErrID, q.After)
		}
		find = find.Where("c.shard <= ? AND (c.shard < ? OR c.seq < ? OR (c.seq = ? AND c.id < ?))",
			last.Shard, last.Shard, last.Seq, last.Seq, last.ID)
	}
	var lines []claimLine
	err := find.Order("c.campaign_id DESC, c.shard DESC, c.seq DESC, c.id DESC").Limit(q.Limit).Find(&lines).Error
	if err != nil {
		return nil, fmt.Errorf("records: claims of a campaign: %w", err)
	}
	if len(lines) == 0 {
		_, err = campaigns.Read(db, q.CampaignID)
		return nil, err
	}
	claims := make([]models.Claim, len(lines))
	for i := range lines {
		claims[i] = lines[i].Claim(lines[i].Currency, lines[i].HoldForMs)
	}
	return claims, nil
}

func findClaims(db *gorm.DB, q models.ClaimsQuery) *gorm.DB {
	find := claimLines(db).Where("c.user_id = ?", q.UserID)
	if q.CampaignID != "" {
		find = find.Where("c.campaign_id = ?", q.CampaignID)
	}
	if q.After != (models.ClaimPlace{}) {
		// In two parts: MySQL uses no index range for a comparison of pairs.
		at := q.After.ClaimedAt.UTC().Format(sqlstore.TimeLayout)
		find = find.Where("c.claimed_at <= ? AND (c.claimed_at < ? OR c.id < ?)", at, at, q.After.ID)
	}
	return find.Order("c.claimed_at DESC, c.id DESC").Limit(q.Limit)
}
