package models

// CampaignJSON is a campaign as the API shows it.
type CampaignJSON struct {
	ID string `json:"id"`
	DefinitionJSON

	CreatedAt Time `json:"created_at"`
	UpdatedAt Time `json:"updated_at"`
}

// JSON is the campaign as the API shows it.
func (c *Campaign) JSON() CampaignJSON {
	return CampaignJSON{ID: c.ID, DefinitionJSON: c.DefinitionJSON(), CreatedAt: NewTime(c.CreatedAt), UpdatedAt: NewTime(c.UpdatedAt)}
}
