package lua

import (
	"hash/fnv"
	"strconv"
)

// PartitionsMax bounds the number of claim streams.
const PartitionsMax = 256

// Every key of Dibs is made in this file. All keys of a campaign carry the hash tag of its partition, {p<N>}, so that a
// script's keys share one slot of a Redis Cluster.

// CampaignKeys are the keys of one campaign.
type CampaignKeys struct {
	State  string // hash: definition and counters
	Users  string // hash: user id -> units used
	Keys   string // hash: digest of an idempotency key, or claim id -> record of the claim
	Stream string // stream: the claim stream of the partition
	Waves  string // zset: of a packet campaign, the list of each time of release that has packets left, by that time

	Evicted string // string: "epoch:seq" of an eviction that MySQL has not heard of
	Lock    string // string: token of the process that loads the campaign
}

// PartitionOf tells which claim stream a campaign belongs to: FNV-1a of its id, modulo the number of partitions.
// It never changes: campaigns would be looked for where they are not.
func PartitionOf(campaignID string, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(campaignID))
	return int(h.Sum64() % uint64(partitions))
}

// KeysOf names the keys of a campaign in its partition.
func KeysOf(campaignID string, partition int) CampaignKeys {
	base := prefix(partition) + "c:" + campaignID
	return CampaignKeys{State: base, Users: base + ":users", Keys: base + ":keys", Stream: StreamKey(partition), Waves: base + ":waves",
		Evicted: base + ":evicted", Lock: base + ":lock"}
}

// StreamKey names the claim stream of a partition.
func StreamKey(partition int) string { return prefix(partition) + "claims" }

// PoisonKey names the stream of entries of a claim stream that could not be read.
func PoisonKey(partition int) string { return StreamKey(partition) + ":poison" }

// ParkedKey names the stream of what a consumer group could not handle of a claim stream, with the reasons.
func ParkedKey(partition int, group string) string { return StreamKey(partition) + ":parked:" + group }

// barrierKey names the string of a partition that is written to wait for it: when it is durable, all that was written before is.
func barrierKey(partition int) string { return prefix(partition) + "kept" }

// noListKey names a list of a partition that is never there, see Scripts.Writable.
func noListKey(partition int) string { return prefix(partition) + "nolist" }

func prefix(partition int) string { return "dibs:{p" + strconv.Itoa(partition) + "}:" }

// generationKey names the generation of a partition's stream. It is there as long as nothing of the stream was lost.
func generationKey(partition int) string { return prefix(partition) + "birth" }

// generationLockKey names the lock of those who replace a generation.
func generationLockKey(partition int) string { return generationKey(partition) + ":lock" }

// LeaderKey names the lease of the syncer that leads.
const LeaderKey = "dibs:leader"

// staged names what is staged for load epoch of a campaign, beside what is there.
func (k CampaignKeys) staged(epoch int64) (users, keys string) {
	number := ":" + strconv.FormatInt(epoch, 10)
	return k.Users + number, k.Keys + number
}

// Packets names the list of the packets that load epoch of a campaign may give away from a time of release on, in milliseconds
// since 1970; 0 is at once. The epoch is in the name so that what an earlier load left is never given away.
func (k CampaignKeys) Packets(epoch, releaseMs int64) string {
	return k.State + ":packets:" + strconv.FormatInt(epoch, 10) + ":" + strconv.FormatInt(releaseMs, 10)
}
