package models

// CampaignJSON is a campaign in the API.
type CampaignJSON struct {
	ID string `json:"id"`
	DefinitionJSON

	CreatedAt Time `json:"created_at"`
	UpdatedAt Time `json:"updated_at"`
}

// JSON returns the campaign for the API.
func (c *Campaign) JSON() CampaignJSON {
	return CampaignJSON{ID: c.ID, DefinitionJSON: c.DefinitionJSON(), CreatedAt: NewTime(c.CreatedAt), UpdatedAt: NewTime(c.UpdatedAt)}
}
