package lua

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"dibs/models"
)

// Meta is the part of a campaign that never changes, and its partition.
type Meta struct {
	ID        string
	Kind      models.Kind
	Partition int
	Location  *time.Location // in which the windows of limits begin
	Currency  string
	HoldForMs int64
	Shards    int    // of the campaign; 0 and 1 are one
	ShardBy   string // see models.Campaign
}

// IsShard reports whether this is a shard of a campaign.
func (m *Meta) IsShard() bool { return models.IsShardID(m.ID) }

// CampaignID is the id of the campaign, also of a shard.
func (m *Meta) CampaignID() string {
	id, _ := models.SplitShardID(m.ID)
	return id
}

// IsSharded reports whether the campaign is spread over several shards, each of which has a Meta of its own. The campaign itself is not in
// Redis.
func (m *Meta) IsSharded() bool { return m.Shards > 1 && !m.IsShard() }

// subject is what decides about the shard of a claim: its user, or the value of another subject.
func (m *Meta) subject(user string, subjects models.Subjects) string {
	if m.ShardBy == "" || m.ShardBy == models.ByUser {
		return user
	}
	return subjects[m.ShardBy]
}

// ShardOf is the shard of a claim, from 1 on.
func (m *Meta) ShardOf(user string, subjects models.Subjects) int {
	if !m.IsSharded() {
		return 1
	}
	return models.ShardOfUser(m.subject(user, subjects), m.Shards)
}

// MetaOf reads the Meta of a campaign's definition. It fails if this machine does not know the campaign's zone.
func (s *Scripts) MetaOf(c *models.Campaign) (Meta, error) {
	zone, err := c.Location()
	if err != nil {
		return Meta{}, fmt.Errorf("lua: campaign %s: %w", c.ID, err)
	}
	return Meta{
		ID: c.ID, Kind: c.Kind, Partition: PartitionOf(c.ID, s.opts.Partitions),
		Location: zone, Currency: c.Currency, HoldForMs: c.HoldForMs, Shards: c.Shards, ShardBy: c.ShardBy,
	}, nil
}

// days are the day of a moment, the two before it and the three after it, for claim.lua. The script picks the day by Redis' clock, so
// processes whose clocks differ agree; the zones are known here.
type days struct {
	first  int64    // days since 1970-01-01 in the zone
	starts [6]int64 // milliseconds since 1970. The last day has no end here, so no moment is found in it
}

// daysBefore is how many days of the table come before the day of the moment. So Redis' time is in the table although this clock is
// wrong by most of a day, even beside a day that the zone leaves out.
const daysBefore = 2

// daysAround makes the table around a moment.
func daysAround(now time.Time, zone *time.Location) days {
	y, m, d := now.In(zone).Date()
	var t days
	t.first = time.Date(y, m, d-daysBefore, 0, 0, 0, 0, time.UTC).Unix() / 86400
	for i := range t.starts {
		t.starts[i] = models.StartOfDay(y, m, d-daysBefore+i, zone).UnixMilli()
	}
	return t
}

// dayTables remembers the table of each zone until its day is over.
type dayTables struct {
	mu     sync.Mutex
	byZone map[string]days
}

func (t *dayTables) at(now time.Time, zone *time.Location) days {
	t.mu.Lock()
	defer t.mu.Unlock()
	ms := now.UnixMilli()
	if table, ok := t.byZone[zone.String()]; ok && table.starts[daysBefore] <= ms && ms < table.starts[daysBefore+1] {
		return table
	}
	if t.byZone == nil {
		t.byZone = make(map[string]days)
	}
	table := daysAround(now, zone)
	t.byZone[zone.String()] = table // as many as the zone database has zones
	return table
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
