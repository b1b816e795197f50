package compare

import (
	"fmt"

	"dibs/models"
)

// RedisFigures are Redis' counters of a campaign.
type RedisFigures struct {
	Epoch     int64         `json:"epoch"`
	Status    models.Status `json:"status"`
	Total     int64         `json:"total"`
	Taken     int64         `json:"taken"` // units
	Remaining int64         `json:"remaining"`
	Seq       int64         `json:"seq"`      // the highest that was used
	Released  int64         `json:"released"` // claims
}

// MySQLFigures are MySQL's counters of a campaign.
type MySQLFigures struct {
	Epoch      int64 `json:"epoch"`
	Total      int64 `json:"total"`
	Claimed    int64 `json:"claimed"` // units
	Remaining  int64 `json:"remaining"`
	SyncedSeq  int64 `json:"synced_seq"` // claims
	LostClaims int64 `json:"lost_claims"`
	LostUnits  int64 `json:"lost_units"` // not for sale
	Released   int64 `json:"released"`   // claims
	Untold     int64 `json:"untold"`     // of these, not in Redis yet

	// accepted, but no row can be written; not counted above
	ParkedClaims int64 `json:"parked_claims"`
	ParkedUnits  int64 `json:"parked_units"`
}

// RowFigures are the sums of the rows of claims, with archived ones.
type RowFigures struct {
	Claims   int64 `json:"claims"`
	Units    int64 `json:"units"`    // of live claims
	Last     int64 `json:"last"`     // highest seq
	Released int64 `json:"released"` // claims
	Archived int64 `json:"archived"` // of the claims

	sold int64 // units of all claims
}

// Comparison is the result of comparing a campaign.
type Comparison struct {
	CampaignID string           `json:"campaign_id"`
	Residency  models.Residency `json:"residency"`
	Redis      *RedisFigures    `json:"redis"` // nil: not in Redis
	MySQL      MySQLFigures     `json:"mysql"`
	Rows       *RowFigures      `json:"rows"` // nil: not counted
	// claims on their way to MySQL; nil: not in Redis
	Backlog *int64 `json:"backlog"`
	// units, Redis less MySQL; nil: no common watermark
	Drift       *int64   `json:"drift"`
	Differences []string `json:"differences"` // what claims on their way do not explain
}

// Agrees reports whether there are no differences.
func (c *Comparison) Agrees() bool { return len(c.Differences) == 0 }

func (c *Comparison) differf(format string, args ...any) {
	c.Differences = append(c.Differences, fmt.Sprintf(format, args...))
}

func (c *Comparison) addShard(one *Comparison) {
	_, shard := models.SplitShardID(one.CampaignID)
	for _, line := range one.Differences {
		c.differf("shard %d: %s", shard, line)
	}
	if one.Residency == models.ResidencyResident || c.Residency == models.ResidencyNone {
		c.Residency = one.Residency
	}
	c.MySQL.Claimed += one.MySQL.Claimed
	c.MySQL.SyncedSeq += one.MySQL.SyncedSeq
	c.MySQL.Released += one.MySQL.Released
	c.MySQL.LostClaims += one.MySQL.LostClaims
	c.MySQL.LostUnits += one.MySQL.LostUnits
	c.MySQL.Untold += one.MySQL.Untold
	c.MySQL.ParkedClaims += one.MySQL.ParkedClaims
	c.MySQL.ParkedUnits += one.MySQL.ParkedUnits
	if c.Rows != nil && one.Rows != nil {
		c.Rows.Claims += one.Rows.Claims
		c.Rows.Units += one.Rows.Units
		c.Rows.Released += one.Rows.Released
		c.Rows.Archived += one.Rows.Archived
		c.Rows.Last = max(c.Rows.Last, one.Rows.Last)
	}
	if held := one.Redis; held != nil {
		c.Redis.Status = held.Status
		c.Redis.Taken += held.Taken
		c.Redis.Seq += held.Seq
		c.Redis.Released += held.Released
		c.Redis.Epoch = max(c.Redis.Epoch, held.Epoch)
	} else { // MySQL has all of it
		c.Redis.Taken += one.MySQL.Claimed + one.MySQL.ParkedUnits + one.MySQL.LostUnits
		c.Redis.Seq += one.MySQL.SyncedSeq + one.MySQL.ParkedClaims + one.MySQL.LostClaims
		c.Redis.Released += one.MySQL.Released
	}
	addTo(&c.Backlog, one.Backlog, one.Redis == nil)
	addTo(&c.Drift, one.Drift, one.Redis == nil)
}

// addTo adds n. An unknown n makes the sum
// unknown, unless Redis lacks the lot.
func addTo(sum **int64, n *int64, isNone bool) {
	switch {
	case *sum == nil || n == nil && isNone:
	case n == nil:
		*sum = nil
	default:
		**sum += *n
	}
}
