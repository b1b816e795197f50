package lua

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"dibs/models"
	"dibs/models/calendar"
)

// Meta is the constant part of a lot, and its partition.
type Meta struct {
	ID        string
	Kind      models.Kind
	Partition int
	Location  *time.Location // of the windows of limits
	Currency  string
	HoldForMs int64
	Shards    int    // of the campaign; 0 is 1
	ShardBy   string // see models.Campaign
	MadeMs    int64  // when the campaign was made, as another may get its id; 0: unknown
}

// IsShard reports whether the lot is a shard.
func (m *Meta) IsShard() bool { return models.IsShardID(m.ID) }

// CampaignID returns the id of the campaign.
func (m *Meta) CampaignID() string { return models.CampaignIDOf(m.ID) }

// IsSharded reports whether the campaign has several shards, each with
// its own Meta. Such a campaign has no lot of its own in Redis.
func (m *Meta) IsSharded() bool { return m.Shards > 1 && !m.IsShard() }

// subject selects the shard of a claim: its
// user, or the value of another subject.
func (m *Meta) subject(user string, subjects models.Subjects) string {
	if m.ShardBy == "" || m.ShardBy == models.ByUser {
		return user
	}
	return subjects[m.ShardBy]
}

// ShardOf returns the shard of a claim, from 1 on.
func (m *Meta) ShardOf(user string, subjects models.Subjects) int {
	if !m.IsSharded() {
		return 1
	}
	return models.ShardOfUser(m.subject(user, subjects), m.Shards)
}

// MetaOf returns the Meta of a lot. It fails if
// this machine lacks the campaign's time zone.
func (s *Scripts) MetaOf(c *models.Campaign) (Meta, error) {
	zone, err := c.Location()
	if err != nil {
		return Meta{}, fmt.Errorf("lua: campaign %s: %w", c.ID, err)
	}
	return Meta{
		ID: c.ID, Kind: c.Kind, Partition: PartitionOf(c.ID, s.opts.Partitions),
		Location: zone, Currency: c.Currency, HoldForMs: c.HoldForMs, Shards: c.Shards, ShardBy: c.ShardBy,
		MadeMs: madeMs(c),
	}, nil
}

func madeMs(c *models.Campaign) int64 {
	if c.CreatedAt.IsZero() {
		return 0
	}
	return c.CreatedAt.UnixMilli()
}

// days are the day of a moment, the two before and the three after it.
// claim.lua selects the day by Redis' clock, so that processes with
// different clocks agree. Redis has no zones.
type days struct {
	first  int64    // days since 1970-01-01 in the zone
	starts [6]int64 // milliseconds since 1970; no moment is in the last day, whose end is unknown
}

// daysBefore is how many days precede that of the moment. So Redis'
// time is in the table even if this clock is wrong by most of a day,
// and beside a day that the zone skips.
const daysBefore = 2

func daysAround(now time.Time, zone *time.Location) days {
	y, m, d := now.In(zone).Date()
	var t days
	t.first = time.Date(y, m, d-daysBefore, 0, 0, 0, 0, time.UTC).Unix() / 86400
	for i := range t.starts {
		t.starts[i] = calendar.StartOfDay(y, m, d-daysBefore+i, zone).UnixMilli()
	}
	return t
}

// dayTables caches the days of each zone until midnight.
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
	t.byZone[zone.String()] = table // bounded by the zones of the database
	return table
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
