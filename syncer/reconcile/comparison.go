package reconcile

import (
	"fmt"

	"dibs/models"
)

// RedisFigures are what Redis says of a campaign.
type RedisFigures struct {
	Epoch     int64         `json:"epoch"`
	Status    models.Status `json:"status"`
	Total     int64         `json:"total"`
	Taken     int64         `json:"taken"` // units
	Remaining int64         `json:"remaining"`
	Seq       int64         `json:"seq"`      // accepted claims
	Released  int64         `json:"released"` // claims
}

// MySQLFigures are what the counters in MySQL say of a campaign.
type MySQLFigures struct {
	Epoch      int64 `json:"epoch"`
	Total      int64 `json:"total"`
	Claimed    int64 `json:"claimed"` // units
	Remaining  int64 `json:"remaining"`
	SyncedSeq  int64 `json:"synced_seq"` // claims
	LostClaims int64 `json:"lost_claims"`
	Released   int64 `json:"released"` // claims
	Untold     int64 `json:"untold"`   // of these, Redis is yet to be told

	ParkedClaims int64 `json:"parked_claims"` // accepted by Redis, without a row because none can be written; counted nowhere above
	ParkedUnits  int64 `json:"parked_units"`
}

// RowFigures are what the rows of claims add up to.
type RowFigures struct {
	Claims   int64 `json:"claims"`
	Units    int64 `json:"units"`    // of live claims
	Last     int64 `json:"last"`     // highest seq
	Released int64 `json:"released"` // claims
	Archived int64 `json:"archived"` // of the claims, those that were moved away
}

// Comparison is what was found when a campaign was compared.
type Comparison struct {
	CampaignID  string           `json:"campaign_id"`
	Residency   models.Residency `json:"residency"`
	Redis       *RedisFigures    `json:"redis"` // nil: Redis does not hold it
	MySQL       MySQLFigures     `json:"mysql"`
	Rows        *RowFigures      `json:"rows"`              // nil: not counted
	Packets     *PacketFigures   `json:"packets,omitempty"` // nil: not counted, or there are none
	Backlog     *int64           `json:"backlog"`           // claims on their way to MySQL; nil: Redis does not hold the campaign
	Drift       *int64           `json:"drift"`             // units, Redis less MySQL; nil: no common watermark
	Differences []string         `json:"differences"`       // what can't be explained by claims that are on their way

	parked    bool     // there are events on the list of those that are parked, with a row or without
	forgotten []string // lists of packets of earlier loads

	inRedis []string // lots that differ in Redis, or where it can only be told from Redis: the rows alone do not correct it
}

// Agrees reports whether nothing is wrong with the books.
func (c *Comparison) Agrees() bool { return len(c.Differences) == 0 }

func (c *Comparison) differf(format string, args ...any) {
	c.Differences = append(c.Differences, fmt.Sprintf(format, args...))
}

func (c *Comparison) differInRedisf(format string, args ...any) {
	c.inRedis = []string{c.CampaignID}
	c.differf(format, args...)
}
