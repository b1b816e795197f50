package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/lua"
	"dibs/models"
)

// pauseSoon is how long a pause waits for MySQL before Redis alone pauses.
const pauseSoon = 400 * time.Millisecond

type (
	createInput struct{ Body campaignBody }
	changeInput struct {
		ID      string `path:"id"`
		IfMatch string `header:"If-Match" doc:"ETags; if none is the campaign's, the request is refused as precondition_failed"`
		Body    changeBody
	}
	definitionInput struct {
		ID      string `path:"id"`
		IfMatch string `header:"If-Match" doc:"ETags; if none is the campaign's, the request is refused as precondition_failed"`
	}
	campaignInput struct {
		ID string `path:"id"`
	}
	listInput struct {
		Query  string `query:"q" maxLength:"200" doc:"part of the id or the name, in upper or lower case"`
		Status string `query:"status" enum:"open,paused,closed" doc:"campaigns of this status only"`
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		After  string `query:"after" doc:"next of the page before"`
		Cursor string `query:"cursor" doc:"the same as after" deprecated:"true"`
	}

	// CreateOutput is the answer of CreateCampaign.
	CreateOutput struct {
		Status   int
		Location string `header:"Location"`
		ETag     string `header:"ETag"` //nolint:tagliatelle // so it is called
		Body     models.CampaignJSON
	}
	// CampaignOutput is the answer of routes that show one campaign.
	CampaignOutput struct {
		ETag string `header:"ETag" doc:"of the definition; each change gives another one"` //nolint:tagliatelle // so it is called
		Body models.CampaignJSON
	}
	// ListOutput is the answer of ListCampaigns.
	ListOutput struct {
		Body struct {
			Campaigns  []models.CampaignJSON `json:"campaigns" nullable:"false"`
			Next       string                `json:"next,omitempty" doc:"absent on the last page"`
			NextCursor string                `json:"next_cursor,omitempty" doc:"the same as next"`
		}
	}
)

// CreateCampaign is POST /v1/campaigns.
func (s *Routes) CreateCampaign(ctx context.Context, in *createInput) (*CreateOutput, error) {
	campaign, p := in.Body.campaign()
	if p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if p := contradiction(&campaign, s.cfg.Clock()); p != nil {
		if _, err := s.cfg.Campaigns.Get(ctx, campaign.ID); errors.Is(err, models.ErrNotFound) {
			return nil, p
		}
	}
	stored, created, err := s.cfg.Campaigns.Create(ctx, campaign)
	if err != nil {
		return nil, s.refuseChange(ctx, "create", campaign.ID, err)
	}
	out := &CreateOutput{Status: http.StatusOK, Location: "/v1/campaigns/" + stored.ID, ETag: etagOf(&stored), Body: stored.JSON()}
	if created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

// ListCampaigns is GET /v1/campaigns.
func (s *Routes) ListCampaigns(ctx context.Context, in *listInput) (*ListOutput, error) {
	if in.After != "" && in.Cursor != "" {
		return nil, wire.Invalid("cursor", "is the same as after: only one of them is taken")
	}
	after := in.After
	parameter := "after"
	if after == "" {
		after = in.Cursor
		parameter = "cursor"
	}
	if after != "" && models.CheckCampaignID(after) != nil {
		return nil, wire.Invalid(parameter, "must be the next of a page")
	}
	if p := checkText("q", in.Query); p != nil { // a database would search for a part of it
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := s.cfg.Campaigns.List(ctx, models.CampaignQuery{
		Text: in.Query, Status: models.Status(in.Status), After: after, Limit: in.Limit + 1,
	})
	if err != nil {
		return nil, s.refuseChange(ctx, "list", "", err)
	}
	out := &ListOutput{}
	page, next := wire.Page(all, in.Limit, func(last *models.Campaign) string { return last.ID })
	out.Body.Next = next
	out.Body.NextCursor = next
	out.Body.Campaigns = make([]models.CampaignJSON, len(page))
	for i := range page {
		out.Body.Campaigns[i] = page[i].JSON()
	}
	return out, nil
}

// GetCampaign is GET /v1/campaigns/{id}.
func (s *Routes) GetCampaign(ctx context.Context, in *definitionInput) (*CampaignOutput, error) {
	c, p := s.campaign(ctx, in.ID)
	if p == nil && hiddenFrom(ctx, &c) {
		p = wire.Refuse(wire.CodeCampaignNotFound)
	}
	if p == nil && !(models.Change{IfVersion: matching(in.IfMatch)}).Fits(c.Version) {
		p = wire.Refuse(wire.CodePreconditionFailed)
	}
	if p != nil {
		return nil, p
	}
	return answerOf(&c), nil
}

// hiddenFrom reports whether the caller is an end user and the campaign
// isn't open. Then it is answered as not found.
func hiddenFrom(ctx context.Context, c *models.Campaign) bool {
	return caller.Of(ctx).User != "" && c.Status != models.StatusOpen
}

func answerOf(c *models.Campaign) *CampaignOutput { return &CampaignOutput{etagOf(c), c.JSON()} }

func (s *Routes) campaign(ctx context.Context, id string) (models.Campaign, *wire.Problem) {
	if p := wire.InvalidID("id", models.CheckCampaignID(id)); p != nil {
		return models.Campaign{}, p
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := s.cfg.Campaigns.Get(ctx, id)
	if err != nil {
		return c, s.refuseChange(ctx, "get", id, err)
	}
	return c, nil
}

// ChangeCampaign is PATCH /v1/campaigns/{id}.
func (s *Routes) ChangeCampaign(ctx context.Context, in *changeInput) (*CampaignOutput, error) {
	change, p := in.Body.change()
	if p != nil {
		return nil, p
	}
	if change.Pauses() {
		return s.pause(ctx, in, change)
	}
	return s.change(ctx, in.ID, in.IfMatch, change)
}

// pause pauses a campaign, only in Redis if MySQL is too slow.
func (s *Routes) pause(ctx context.Context, in *changeInput, change models.Change) (*CampaignOutput, error) {
	soon, cancel := context.WithTimeout(ctx, pauseSoon)
	defer cancel()
	out, err := s.change(soon, in.ID, in.IfMatch, change)
	if p, is := errors.AsType[*wire.Problem](err); !is || p.Code != wire.CodeUnavailable {
		return out, err
	}
	now, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	c, err := s.cfg.Campaigns.Pause(now, in.ID)
	s.cfg.Changed(in.ID)
	if errors.Is(err, lua.ErrAbsent) { // MySQL alone can pause it, however late
		if out, err := s.change(ctx, in.ID, in.IfMatch, change); err == nil {
			return out, nil
		}
	}
	if err != nil {
		return nil, s.refuse(ctx, "pause", in.ID, err, "MySQL does not answer, and Redis does not say that it "+
			"paused each part of the campaign: it may "+
			"take claims. A campaign that Redis does not hold takes none before MySQL is back. Send the request again.")
	}
	return answerOf(&c), nil
}

type pausedOutput struct {
	Body struct {
		Paused   []string `json:"paused" doc:"ids"`
		Complete bool     `json:"complete" doc:"false: MySQL did not answer, and campaigns that Redis does not hold are not paused. They take no claims before MySQL is back: send the request again then"`
	}
}

// PauseCampaigns is POST /v1/campaigns:pause.
func (s *Routes) PauseCampaigns(
	ctx context.Context, _ *struct{},
) (*pausedOutput, error) { //nolint:revive // Huma alone uses the type
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	paused, isAll, err := s.cfg.Campaigns.PauseAll(ctx, pauseSoon)
	s.changed(paused)
	if err != nil {
		return nil, s.refuse(ctx, "pause", "", err, fmt.Sprintf("Redis does not say that it paused every campaign, "+
			"only %d of them. Send the request again.",
			len(paused)))
	}
	out := &pausedOutput{}
	out.Body.Paused = append([]string{}, paused...)
	out.Body.Complete = isAll
	return out, nil
}

func (s *Routes) changed(campaignIDs []string) {
	for _, id := range campaignIDs {
		s.cfg.Changed(id)
	}
}

// CloseCampaign is POST /v1/campaigns/{id}/close.
func (s *Routes) CloseCampaign(ctx context.Context, in *definitionInput) (*CampaignOutput, error) {
	return s.change(ctx, in.ID, in.IfMatch, models.Change{Status: new(models.StatusClosed)})
}

// DeleteCampaign is DELETE /v1/campaigns/{id}.
func (s *Routes) DeleteCampaign(ctx context.Context, in *campaignInput) (*struct{}, error) {
	if p := wire.InvalidID("id", models.CheckCampaignID(in.ID)); p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s.cfg.Delete(ctx, in.ID)
	s.cfg.Changed(in.ID)
	if err != nil {
		return nil, s.refuse(ctx, "delete", in.ID, err, "MySQL or Redis does not answer, or the campaign is being loaded. "+
			"Send the request again: after an answer that was lost it is campaign_not_found.")
	}
	return nil, nil //nolint:nilnil // 204 has no body
}

// change changes a campaign that isn't closed. Closing it again, or
// changing nothing, only returns the campaign.
func (s *Routes) change(ctx context.Context, id, ifMatch string, change models.Change) (*CampaignOutput, error) {
	change.IfVersion = matching(ifMatch)
	c, p := s.campaign(ctx, id)
	if p != nil {
		return nil, p
	}
	closes := change.Status != nil && *change.Status == models.StatusClosed
	if c.Status == models.StatusClosed && !closes {
		return nil, wire.Refuse(wire.CodeClosed)
	}
	if p := contradicts(&change, &c); p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := s.cfg.Campaigns.Change(ctx, id, change)
	s.cfg.Changed(id) // after an error, too: it may have been changed
	if err != nil {
		return nil, s.refuseChange(ctx, "change", id, err)
	}
	return answerOf(&c), nil
}
