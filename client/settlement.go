package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Settlement is the sums of one day.
type Settlement struct {
	Date     string    `json:"date"`
	TimeZone string    `json:"time_zone"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Final    bool      `json:"final"` // the sums include every event of the day
	Missing  []struct {
		CampaignID string `json:"campaign_id,omitempty"`
		Reason     string `json:"reason"`
	} `json:"missing"`
	Sums []struct {
		CampaignID string `json:"campaign_id"`
		Currency   string `json:"currency"`
		Type       string `json:"type"`
		Claims     int64  `json:"claims"`
		Units      int64  `json:"units"`
		Amount     int64  `json:"amount"` // minor units
	} `json:"sums"`
}

// Settlement sums up the events of a day such as 2027-01-31 in a time zone;
// "" is UTC. It may take longer than Config.AttemptTimeout. Refusals:
// ErrInvalid.
func (c *Client) Settlement(ctx context.Context, date, timeZone string) (Settlement, error) {
	return send[Settlement](ctx, c, &call{
		method: http.MethodGet, path: "/v1/settlements/" + segment(date), query: url.Values{"time_zone": {timeZone}}, answerMax: longAnswerMax,
	})
}

// Group is a consumer group of the claim streams with its lag.
type Group struct {
	Name       string `json:"name"`
	Partitions []struct {
		Partition int   `json:"partition"`
		Lag       int64 `json:"lag"`     // entries not delivered to it yet
		Pending   int64 `json:"pending"` // entries delivered to it and not acknowledged
	} `json:"partitions"`
}

// Groups lists the registered consumer groups.
func (c *Client) Groups(ctx context.Context) ([]Group, error) {
	answer, err := get[struct {
		Groups []Group `json:"groups"`
	}](ctx, c, "/v1/groups", nil)
	return answer.Groups, err
}

// AddGroup registers a consumer group. Repeating it changes nothing.
func (c *Client) AddGroup(ctx context.Context, name string) error {
	_, err := send[struct{}](ctx, c, &call{method: http.MethodPut, path: "/v1/groups/" + segment(name)})
	return err
}

// RemoveGroup removes a consumer group without readers. Refusals:
// ErrInvalid, Code("group_not_found"), Code("group_in_use").
func (c *Client) RemoveGroup(ctx context.Context, name string) error {
	_, err := send[struct{}](ctx, c, &call{method: http.MethodDelete, path: "/v1/groups/" + segment(name)})
	return err
}
