package campaigns

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// Claims reads the claims that MySQL holds.
type Claims struct{ db *gorm.DB }

// NewClaims makes the reader.
func NewClaims(db *gorm.DB) *Claims { return &Claims{db: db} }

// claimLine is a claim with fields of its campaign, which are zero when there is no such campaign.
type claimLine struct {
	models.ClaimRow `gorm:"embedded"`

	Currency  string
	HoldForMs int64
}

func claimLines(db *gorm.DB) *gorm.DB {
	return db.Table("claims c").Joins("LEFT JOIN campaigns k ON k.id = c.campaign_id").
		Select("c.*, k.currency, k.hold_for_ms")
}

// Claim reads one claim as it is now; a claim that is parked, because MySQL refused its row, as it was accepted. Errors:
// models.ErrNotFound.
func (r *Claims) Claim(ctx context.Context, id string) (models.Claim, error) {
	var line claimLine
	err := claimLines(r.db.WithContext(ctx)).Where("c.id = ?", id).Take(&line).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return r.parked(ctx, id)
	}
	if err != nil {
		return models.Claim{}, fmt.Errorf("campaigns: claim %s: %w", id, err)
	}
	return line.Claim(line.Currency, line.HoldForMs), nil
}

// parked reads a claim that is parked: its user was answered yes.
func (r *Claims) parked(ctx context.Context, id string) (models.Claim, error) {
	var line struct {
		Payload   []byte
		HoldForMs int64
	}
	err := r.db.WithContext(ctx).Table("parked_events p").Joins("LEFT JOIN campaigns k ON k.id = p.campaign_id").
		Select("p.payload, k.hold_for_ms").Where("p.id = ?", id).Take(&line).Error
	switch {
	case errors.Is(err, gorm.ErrRecordNotFound):
		return models.Claim{}, fmt.Errorf("campaigns: %w: claim %s", models.ErrNotFound, id)
	case err != nil:
		return models.Claim{}, fmt.Errorf("campaigns: claim %s: %w", id, err)
	}
	e, err := models.DecodeEvent(line.Payload)
	if err != nil || e.Type != models.EventClaimAccepted || e.ID != id {
		return models.Claim{}, fmt.Errorf("campaigns: %w: claim %s", models.ErrNotFound, id)
	}
	return e.Claim(line.HoldForMs), nil
}

// ClaimsOf reads one page of the claims of a user, newest first.
func (r *Claims) ClaimsOf(ctx context.Context, q models.ClaimsQuery) ([]models.Claim, error) {
	var lines []claimLine
	if err := findClaims(r.db.WithContext(ctx), q).Find(&lines).Error; err != nil {
		return nil, fmt.Errorf("campaigns: claims of a user: %w", err)
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
		// In two parts: MySQL makes no range of an index out of a comparison of pairs.
		at := q.After.ClaimedAt.UTC().Format(sqlstore.TimeLayout)
		find = find.Where("c.claimed_at <= ? AND (c.claimed_at < ? OR c.id < ?)", at, at, q.After.ID)
	}
	return find.Order("c.claimed_at DESC, c.id DESC").Limit(q.Limit)
}
