package operator

import (
	"context"
	"errors"
	"time"

	"dibs/api/wire"
	"dibs/models"
	"dibs/models/calendar"
)

// Audit reads who changed what.
type Audit interface {
	// List returns entries, newest first. Errors: models.ErrID if q.Before
	// isn't one of them; any other means that MySQL doesn't answer.
	List(ctx context.Context, q models.AuditQuery) ([]models.AuditEntry, error)
}

type auditInput struct {
	CampaignID string `query:"campaign_id" doc:"entries about this campaign only"`
	Since      string `query:"since" format:"date-time" doc:"entries from this time on only"`
	Limit      int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor     string `query:"cursor" doc:"next_cursor of the page before"`
}

// AuditOutput is the answer of ListAudit.
type AuditOutput struct{ Body auditList }

type auditList struct {
	Entries    []models.AuditEntry `json:"entries" nullable:"false" doc:"newest first"`
	NextCursor string              `json:"next_cursor,omitempty" doc:"absent on the last page"`
}

// ListAudit is GET /v1/audit.
func (s *Routes) ListAudit(ctx context.Context, in *auditInput) (*AuditOutput, error) {
	if in.CampaignID != "" {
		if p := wire.InvalidID("campaign_id", models.CheckCampaignID(in.CampaignID)); p != nil {
			return nil, p
		}
	}
	noCursor := wire.Invalid("cursor", "must be the next_cursor of a page")
	if in.Cursor != "" && models.CheckClaimID(in.Cursor) != nil {
		return nil, noCursor
	}
	var since time.Time
	if in.Since != "" {
		var err error
		since, err = calendar.ParseTime(in.Since)
		if err != nil {
			return nil, wire.Invalid("since", "must be an RFC 3339 time such as 2027-01-31T18:00:00Z")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := s.cfg.Audit.List(ctx, models.AuditQuery{
		CampaignID: in.CampaignID, Since: since, Before: in.Cursor, Limit: in.Limit + 1,
	})
	switch {
	case errors.Is(err, models.ErrID):
		return nil, noCursor
	case err != nil:
		return nil, s.refuseChange(ctx, "audit", in.CampaignID, err)
	}
	page, next := wire.Page(all, in.Limit, func(last *models.AuditEntry) string { return last.ID })
	return &AuditOutput{auditList{append([]models.AuditEntry{}, page...), next}}, nil
}
