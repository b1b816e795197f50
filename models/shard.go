package models

import (
	"cmp"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
)

// A campaign of several shards is spread over as many places in Redis. Its
// total is dealt out to them. Each shard works like a campaign of its own under
// the id that ShardID makes: it is loaded, claimed from and evicted by itself.
// Units move to where they are asked for. A user has one shard, which knows all
// that the user holds.

// ShardsMax bounds the shards of a campaign.
const ShardsMax = 64

// shardMark stands between the id of a campaign and the number of a shard. No
// id of a campaign holds it.
const shardMark = "#"

// shardedIDLength bounds the id of a campaign of several shards: those of its
// shards are no longer than an id may be.
const shardedIDLength = CampaignIDLength - len("#64")

// ShardID is the id of a shard, from 1 on, wherever a campaign of one shard has
// its own: in keys, and as the id of its books. Shard 0 is the campaign itself.
func ShardID(campaignID string, shard int) string {
	if shard == 0 {
		return campaignID
	}
	return campaignID + shardMark + strconv.Itoa(shard)
}

// SplitShardID takes apart what ShardID made.
func SplitShardID(id string) (campaignID string, shard int) {
	campaignID, number, isShard := strings.Cut(id, shardMark)
	if isShard {
		shard, _ = strconv.Atoi(number) // made by ShardID
	}
	return campaignID, shard
}

// IsShardID reports whether an id is that of a shard.
func IsShardID(id string) bool { return strings.Contains(id, shardMark) }

// ShardOfUser is the shard of a user, or of another subject of limits, from 1
// on. The function never changes, as users are where it put them.
func ShardOfUser(userID string, shards int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(userID))
	sum := h.Sum64()
	sum ^= sum >> 32 // FNV's low bits hang on the last letters
	return 1 + int(sum%uint64(shards))
}

// ShardIDs are the ids of all shards of a campaign; of a campaign of one shard
// it is its own.
func (c *Campaign) ShardIDs() []string { return ShardIDs(c.ID, c.Shards) }

// ShardIDs is Campaign.ShardIDs of a campaign of which only that is known.
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

// DealtTo is how much of an amount that is dealt out to shards goes to one of
// them, from 1: all get the same, the first ones a unit more.
func DealtTo(shard, shards int, amount int64) int64 {
	units := amount / int64(shards)
	if int64(shard) <= amount%int64(shards) {
		units++
	}
	return units
}

// ShardOfPacket is the shard that a packet is dealt to by its position in the
// campaign; 0 in a campaign of one shard.
func ShardOfPacket(position int64, shards int) int {
	if shards <= 1 {
		return 0
	}
	return 1 + int((position-1)%int64(shards))
}

// IsSharded reports whether the campaign is spread over several shards. A shard
// is not.
func (c *Campaign) IsSharded() bool { return c.Shards > 1 && !IsShardID(c.ID) }

// LotID is the id of the books that a claim belongs to: those of its shard, or
// of its campaign.
func (e *Event) LotID() string { return ShardID(e.CampaignID, e.Shard) }

// LotID is the id of the books that a claim belongs to: those of its shard, or
// of its campaign.
func (r *ClaimRow) LotID() string { return ShardID(r.CampaignID, r.Shard) }

// ShardSubject is the subject whose value decides about the shard of a claim.
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

// ShardFigures are one shard of a campaign as operators see it. Free and Seq
// are Redis' while it holds the shard, else MySQL's.
type ShardFigures struct {
	Shard     int   `json:"shard" doc:"from 1"`
	Partition int   `json:"partition"`
	Granted   int64 `json:"granted" doc:"units that it has, claimed or free"`
	Claimed   int64 `json:"claimed" doc:"units of live claims"`
	Free      int64 `json:"free" doc:"units that can be claimed there"`
	Seq       int64 `json:"seq" doc:"claims that it accepted"`
	SyncedSeq int64 `json:"synced_seq" doc:"of these, those in MySQL"`
}

// Need is what a shard of a campaign lacks.
type Need struct {
	Shard  int   // from 1
	Shards int   // of the campaign
	Units  int64 // that are to be free there
	Ahead  bool  // no one waits yet

	// Within is how long anybody waits; 0 is as long as it takes. No move
	// begins later.
	Within time.Duration
}

// PaceSpan is about as long as a move takes: MySQL has to apply the debit. A
// shard is refilled before it has less than it gives away in two of them.
const PaceSpan = 150 * time.Millisecond

// NeedAhead is what a shard needs before it is dry, by the units that it has
// left after a call that took some, and those that it gives away in a PaceSpan.
// Every process sees the shard run low, so if each of them asked, most requests
// would find nothing to move. Only the process whose call crosses a line asks;
// the later lines are there in case that one is slow.
func NeedAhead(remaining, taken, pace int64) (need Need, lacks bool) {
	for _, line := range []int64{2 * pace, pace, pace / 2} {
		lacks = lacks || remaining <= line && remaining+taken > line
	}
	return Need{Units: 2*pace + 1, Ahead: true}, lacks
}

// Refill is what came of a Need. There was a moment at which the units were
// there, and someone may have taken them since; or there was a moment at which
// a claim of SoldOutFrom units or more was too large for all that the campaign
// had.
type Refill struct {
	SoldOutFrom int64 // units; 0 is unless the units were there
}

// ShardsOf are the shards of a campaign as operators see them.
type ShardsOf struct {
	CampaignID string         `json:"campaign_id"`
	Total      int64          `json:"total"`
	MovesOpen  int            `json:"moves_open" doc:"moves of units that are on their way between shards"`
	Shards     []ShardFigures `json:"shards" nullable:"false"`

	LowStockAt int64 `json:"-"`
	Released   int64 `json:"-"` // claims
	Sold       int64 `json:"-"` // units of all claims so far, lost ones included
}
