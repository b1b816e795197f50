package models

import (
	"cmp"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
)

// A campaign of several shards has as many lots in Redis, each under the id
// that ShardID makes. Its total is divided among them. Each shard is loaded,
// claimed from and evicted like a campaign of its own. Units move to the
// shards that need them. A user's claims are all in one shard, which can
// therefore enforce limits.

// ShardsMax bounds the shards of a campaign.
const ShardsMax = 64

// shardMark separates a campaign's id from a shard's number. No campaign's id
// contains it.
const shardMark = "#"

// shardedIDLength bounds the id of a sharded campaign, so that shard ids fit
// CampaignIDLength.
const shardedIDLength = CampaignIDLength - len("#64")

// ShardID is the id of a shard, from 1, in keys and in rows of lots. Shard 0
// is the campaign itself.
func ShardID(campaignID string, shard int) string {
	if shard == 0 {
		return campaignID
	}
	return campaignID + shardMark + strconv.Itoa(shard)
}

// SplitShardID is the reverse of ShardID.
func SplitShardID(id string) (campaignID string, shard int) {
	campaignID, number, isShard := strings.Cut(id, shardMark)
	if isShard {
		shard, _ = strconv.Atoi(number) // made by ShardID
	}
	return campaignID, shard
}

// CampaignIDOf is the id of a lot's campaign.
func CampaignIDOf(lotID string) string {
	campaignID, _ := SplitShardID(lotID)
	return campaignID
}

// IsShardID reports whether an id is that of a shard.
func IsShardID(id string) bool { return strings.Contains(id, shardMark) }

// ShardOfUser is the shard of a user, or of another subject, from 1. The
// function must never change: users' claims stay in the shard it chose.
func ShardOfUser(userID string, shards int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(userID))
	sum := h.Sum64()
	sum ^= sum >> 32 // FNV's low bits depend mostly on the last letters
	return 1 + int(sum%uint64(shards))
}

// ShardIDs are the ids of all shards. A campaign of one shard has its own id.
func (c *Campaign) ShardIDs() []string { return ShardIDs(c.ID, c.Shards) }

// ShardIDs is Campaign.ShardIDs without a Campaign.
func ShardIDs(campaignID string, shards int) []string {
	if shards <= 1 {
		return []string{campaignID}
	}
	ids := make([]string, shards)
	for i := range ids {
		ids[i] = ShardID(campaignID, i+1)
	}
	return ids
}

// DealtTo is the part of an amount that a shard receives, from 1. All get the
// same, the first ones one more.
func DealtTo(shard, shards int, amount int64) int64 {
	units := amount / int64(shards)
	if int64(shard) <= amount%int64(shards) {
		units++
	}
	return units
}

// ShardOfPacket is the shard of a packet by its position in the campaign; 0
// in a campaign of one shard.
func ShardOfPacket(position int64, shards int) int {
	if shards <= 1 {
		return 0
	}
	return 1 + int((position-1)%int64(shards))
}

// IsSharded reports whether the campaign has several shards. False for a
// shard.
func (c *Campaign) IsSharded() bool { return c.Shards > 1 && !IsShardID(c.ID) }

// ShardSubject is the subject whose value selects a claim's shard.
func (c *Campaign) ShardSubject() string { return cmp.Or(c.ShardBy, ByUser) }

func (c *Campaign) validateShards() error {
	switch by := c.ShardSubject(); {
	case !IsSubjectName(by):
		return refuse("shard_by", "must be user or a name of 1 to %d of a-z and _", SubjectNameLength)
	case by != ByUser && c.Kind == KindPacket:
		return refuse("shard_by", "must be user in a packet campaign: a packet is its user's")
	case by != ByUser && c.Shards <= 1:
		return refuse("shard_by", "needs several shards")
	case c.Shards < 0 || c.Shards > ShardsMax:
		return refuse("shards", "must be 1 to %d", ShardsMax)
	case c.Shards > 1 && len(c.ID) > shardedIDLength:
		return refuse("id", "must be at most %d characters in a campaign of several shards", shardedIDLength)
	}
	return nil
}

// ShardFigures describes one shard for operators. Free and Seq come from
// Redis while it holds the shard, else from MySQL.
type ShardFigures struct {
	Shard     int   `json:"shard" doc:"from 1"`
	Partition int   `json:"partition"`
	Granted   int64 `json:"granted" doc:"units that it has, claimed or free"`
	Claimed   int64 `json:"claimed" doc:"units of live claims"`
	Free      int64 `json:"free" doc:"units that can be claimed there"`
	Seq       int64 `json:"seq" doc:"claims that it accepted"`
	SyncedSeq int64 `json:"synced_seq" doc:"of these, those in MySQL"`
}

// Need is what a shard lacks.
type Need struct {
	Shard  int   // from 1
	Shards int   // of the campaign
	Units  int64 // to be free there
	Ahead  bool  // no claim waits yet

	// Within is the longest wait of a claim; 0 is unlimited. No move starts
	// after it.
	Within time.Duration
}

// PaceSpan is about as long as a move takes: MySQL has to apply the debit. A
// shard is refilled before it has less than it sells in two of them.
const PaceSpan = 150 * time.Millisecond

// NeedAhead returns what a shard needs before it is dry. remaining is what a
// call left after taking taken units. pace is what the shard sells in a
// PaceSpan. Every process sees the shard run low. If each requested a refill,
// most requests would find nothing to move. So only the process whose call
// crosses a line requests one. The lower lines are for when the first request
// is slow.
func NeedAhead(remaining, taken, pace int64) (need Need, lacks bool) {
	for _, line := range []int64{2 * pace, pace, pace / 2} {
		lacks = lacks || remaining <= line && remaining+taken > line
	}
	return Need{Units: 2*pace + 1, Ahead: true}, lacks
}

// Refill is the result of a Need. Either the units were there at one moment,
// and may have been claimed since. Or at one moment the whole campaign had
// too few for a claim of SoldOutFrom units or more.
type Refill struct {
	SoldOutFrom int64 // units; 0: the units were there
}

// ShardsOf describes a campaign's shards for operators.
type ShardsOf struct {
	CampaignID string         `json:"campaign_id"`
	Total      int64          `json:"total"`
	MovesOpen  int            `json:"moves_open" doc:"moves of units that are on their way between shards"`
	Shards     []ShardFigures `json:"shards" nullable:"false"`

	LowStockAt int64 `json:"-"`
	Released   int64 `json:"-"` // claims
	Sold       int64 `json:"-"` // units of all claims ever, including lost ones
}
