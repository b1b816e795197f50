package operator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

// campaignView is a campaign as operators see it.
type campaignView struct {
	ID            string        `json:"id"`
	Kind          models.Kind   `json:"kind" enum:"coupon,packet"`
	Name          string        `json:"name,omitempty"`
	Status        models.Status `json:"status" enum:"open,paused,closed"`
	Total         int64         `json:"total"`
	PerUser       int64         `json:"per_user,omitempty"`
	PerUserPerDay int64         `json:"per_user_per_day,omitempty"`
	TimeZone      string        `json:"time_zone"`
	StartsAt      *models.Time  `json:"starts_at,omitempty"`
	EndsAt        *models.Time  `json:"ends_at,omitempty"`
	LowStockAt    int64         `json:"low_stock_at,omitempty"`
	Currency      string        `json:"currency,omitempty"`
	SenderID      string        `json:"sender_id,omitempty"`
	HoldFor       string        `json:"hold_for,omitempty"`
	Version       int64         `json:"version" doc:"counts the changes"`
	CreatedAt     models.Time   `json:"created_at"`
	UpdatedAt     models.Time   `json:"updated_at"`
}

func viewOf(c *models.Campaign) campaignView {
	v := campaignView{
		ID: c.ID, Kind: c.Kind, Name: c.Name, Status: c.Status, Total: c.Total, PerUser: c.PerUser,
		PerUserPerDay: c.PerUserPerDay, TimeZone: c.TimeZone, StartsAt: timeView(c.StartsAt), EndsAt: timeView(c.EndsAt),
		LowStockAt: c.LowStockAt, Currency: c.Currency, SenderID: c.SenderID, Version: c.Version,
		CreatedAt: models.NewTime(c.CreatedAt), UpdatedAt: models.NewTime(c.UpdatedAt),
	}
	if c.HoldForMs > 0 {
		v.HoldFor = c.HoldFor().String()
	}
	return v
}

func timeView(t *time.Time) *models.Time {
	if t == nil {
		return nil
	}
	v := models.NewTime(*t)
	return &v
}

type (
	createInput struct{ Body campaignBody }
	changeInput struct {
		ID   string `path:"id"`
		Body changeBody
	}
	campaignInput struct {
		ID string `path:"id"`
	}
	listInput struct {
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		Cursor string `query:"cursor" doc:"next_cursor of the page before"`
	}

	createOutput struct {
		Status   int
		Location string `header:"Location"`
		Body     campaignView
	}
	campaignOutput struct{ Body campaignView }
	listOutput     struct {
		Body struct {
			Campaigns  []campaignView `json:"campaigns" nullable:"false"`
			NextCursor string         `json:"next_cursor,omitempty" doc:"absent on the last page"`
		}
	}
)

// createCampaign is POST /v1/campaigns.
func (s *Routes) CreateCampaign(ctx context.Context, in *createInput) (*createOutput, error) {
	asked, p := in.Body.campaign()
	if p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AdminTimeout)
	defer cancel()
	c, created, err := s.cfg.Campaigns.Create(ctx, asked)
	if err != nil {
		return nil, s.adminProblem("create", asked.ID, err)
	}
	out := &createOutput{Status: 200, Location: "/v1/campaigns/" + c.ID, Body: viewOf(&c)}
	if created {
		out.Status = 201
	}
	return out, nil
}

// listCampaigns is GET /v1/campaigns.
func (s *Routes) ListCampaigns(ctx context.Context, in *listInput) (*listOutput, error) {
	if in.Cursor != "" && models.CheckCampaignID(in.Cursor) != nil {
		return nil, wire.Invalid("cursor", "is not one that a page gave")
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AdminTimeout)
	defer cancel()
	page, err := s.cfg.Campaigns.List(ctx, in.Cursor, in.Limit+1) // one more tells whether there is a next page
	if err != nil {
		return nil, s.adminProblem("list", "", err)
	}
	out := &listOutput{}
	if len(page) > in.Limit {
		page = page[:in.Limit]
		out.Body.NextCursor = page[in.Limit-1].ID
	}
	out.Body.Campaigns = make([]campaignView, len(page))
	for i := range page {
		out.Body.Campaigns[i] = viewOf(&page[i])
	}
	return out, nil
}

// getCampaign is GET /v1/campaigns/{id}.
func (s *Routes) GetCampaign(ctx context.Context, in *campaignInput) (*campaignOutput, error) {
	c, p := s.campaign(ctx, in.ID)
	if p != nil {
		return nil, p
	}
	return &campaignOutput{viewOf(&c)}, nil
}

func (s *Routes) campaign(ctx context.Context, id string) (models.Campaign, *wire.Problem) {
	if err := models.CheckCampaignID(id); err != nil {
		return models.Campaign{}, wire.Invalid("id", wire.IDReason(err))
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AdminTimeout)
	defer cancel()
	c, err := s.cfg.Campaigns.Get(ctx, id)
	if err != nil {
		return models.Campaign{}, s.adminProblem("get", id, err)
	}
	return c, nil
}

// changeCampaign is PATCH /v1/campaigns/{id}.
func (s *Routes) ChangeCampaign(ctx context.Context, in *changeInput) (*campaignOutput, error) {
	change, p := in.Body.change()
	if p != nil {
		return nil, p
	}
	return s.change(ctx, in.ID, change)
}

// closeCampaign is POST /v1/campaigns/{id}/close.
func (s *Routes) CloseCampaign(ctx context.Context, in *campaignInput) (*campaignOutput, error) {
	closed := models.StatusClosed
	return s.change(ctx, in.ID, models.Change{Status: &closed})
}

// change changes a campaign that is not closed. Closing again, and changing nothing, only show the campaign.
func (s *Routes) change(ctx context.Context, id string, change models.Change) (*campaignOutput, error) {
	c, p := s.campaign(ctx, id)
	if p != nil {
		return nil, p
	}
	closes := change.Status != nil && *change.Status == models.StatusClosed
	if c.Status == models.StatusClosed && !closes {
		return nil, &wire.Problem{Code: wire.CodeClosed, Detail: "The campaign is closed for ever and can't be changed."}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AdminTimeout)
	defer cancel()
	c, err := s.cfg.Campaigns.Change(ctx, id, change)
	s.cfg.Changed(id) // whatever came of it, what was known may be wrong now
	if err != nil {
		return nil, s.adminProblem("change", id, err)
	}
	return &campaignOutput{viewOf(&c)}, nil
}

// adminProblem is the refusal of an error of Campaigns. It is the end of the error's way.
func (s *Routes) adminProblem(verb, id string, err error) *wire.Problem {
	var refused *models.FieldError
	switch {
	case errors.As(err, &refused):
		return problemOfField(err)
	case errors.Is(err, models.ErrNotFound):
		return &wire.Problem{Code: wire.CodeCampaignNotFound}
	case errors.Is(err, models.ErrExists):
		return &wire.Problem{Code: wire.CodeCampaignExists}
	}
	s.complain.Do(func() {
		s.log.Warn("campaigns failed", slog.String("verb", verb), slog.String("campaign_id", id), slog.Any("error", err))
	})
	if errors.Is(err, lua.ErrUnavailable) || errors.Is(err, lua.ErrOutcomeUnknown) {
		return &wire.Problem{Code: wire.CodeUnavailable, Detail: "The change is stored, but Redis could not be told and still works by the old " +
			"definition. It is told within seconds of being back. Ask again; asking twice does no harm."}
	}
	return &wire.Problem{Code: wire.CodeUnavailable, Detail: "The books are not available now. Ask again; asking twice does no harm."}
}

func problemOfField(err error) *wire.Problem {
	if refused, ok := errors.AsType[*models.FieldError](err); ok {
		return wire.Invalid(refused.Field, refused.Reason)
	}
	return &wire.Problem{Code: wire.CodeInvalid, Detail: err.Error()}
}
