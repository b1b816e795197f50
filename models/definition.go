package models

// DefinitionJSON is what people have decided of a campaign, as JSON: in the API, in the console and in the audit log.
type DefinitionJSON struct {
	Kind          Kind   `json:"kind" enum:"coupon,packet"`
	Name          string `json:"name,omitempty"`
	Status        Status `json:"status" enum:"open,paused,closed"`
	Total         int64  `json:"total"`
	PerUser       int64  `json:"per_user,omitempty"`
	PerUserPerDay int64  `json:"per_user_per_day,omitempty"`
	TimeZone      string `json:"time_zone"`
	StartsAt      *Time  `json:"starts_at,omitempty"`
	EndsAt        *Time  `json:"ends_at,omitempty"`
	LowStockAt    int64  `json:"low_stock_at,omitempty"`
	Currency      string `json:"currency,omitempty"`
	SenderID      string `json:"sender_id,omitempty"`
	HoldFor       string `json:"hold_for,omitempty"`
	Version       int64  `json:"version" doc:"counts the changes, by one"`
}

// CampaignJSON is a campaign as the API shows it.
type CampaignJSON struct {
	ID string `json:"id"`
	DefinitionJSON

	CreatedAt Time `json:"created_at"`
	UpdatedAt Time `json:"updated_at"`
}

// DefinitionJSON is the definition of the campaign as JSON.
func (c *Campaign) DefinitionJSON() DefinitionJSON {
	d := DefinitionJSON{
		Kind: c.Kind, Name: c.Name, Status: c.Status, Total: c.Total, PerUser: c.PerUser, PerUserPerDay: c.PerUserPerDay,
		TimeZone: c.TimeZone, LowStockAt: c.LowStockAt, Currency: c.Currency, SenderID: c.SenderID, Version: c.Changes,
	}
	if c.StartsAt != nil {
		d.StartsAt = new(NewTime(*c.StartsAt))
	}
	if c.EndsAt != nil {
		d.EndsAt = new(NewTime(*c.EndsAt))
	}
	if c.HoldForMs > 0 {
		d.HoldFor = c.HoldFor().String()
	}
	return d
}

// JSON is the campaign as the API shows it.
func (c *Campaign) JSON() CampaignJSON {
	return CampaignJSON{ID: c.ID, DefinitionJSON: c.DefinitionJSON(), CreatedAt: NewTime(c.CreatedAt), UpdatedAt: NewTime(c.UpdatedAt)}
}
