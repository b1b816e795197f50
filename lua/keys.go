package lua

import (
	"cmp"
	"hash/fnv"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"

	"dibs/models"
)

// PartitionsMax bounds the number of claim streams.
const PartitionsMax = 256

// Every key of campaigns and of the claim streams is made in this file. All keys of a campaign carry the hash tag of its partition, {p<N>}, so that a
// script's keys share one slot of a Redis Cluster.

// CampaignKeys are the keys of one campaign, or of one shard of a campaign, whose id is that of models.ShardID.
type CampaignKeys struct {
	State  string // hash: definition and counters
	Users  string // hash: user id -> record of what the user holds
	Keys   string // hash: digest of an idempotency key, or claim id -> record of the claim
	Stream string // stream: the claim stream of the partition
	Waves  string // zset: of a packet campaign, list of packets -> its time of release
	Moves  string // zset: of a shard, the moves of units that the load was credited lately

	Signals string // hash: of the partition, see SignalsKey
}

// PartitionOf reports which claim stream a campaign belongs to, or a shard of one: FNV-1a of the campaign's id, modulo the number of
// partitions. The function never changes, as campaigns are where it put them.
//
// Shards have partitions of their own as long as there are some, and those of a few shards are far from each other by their hash slots:
// the primaries of a cluster hold stretches of slots.
func PartitionOf(id string, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	campaignID, shard := models.SplitShardID(id)
	h := fnv.New64a()
	_, _ = h.Write([]byte(campaignID))
	partition := int(h.Sum64() % uint64(partitions))
	if shard == 0 {
		return partition
	}
	order := shardOrder(partitions, partition)
	return order[(shard-1)%len(order)]
}

// shardOrder are the partitions of the shards of a campaign, by that of its first. The others lie where the hash slots are cut in halves,
// quarters and so on, counted from there, or as near as there is one. Primaries of a cluster hold equal stretches of slots, partitions
// cluster in some of them: every second or fourth partition would leave a primary out.
func shardOrder(partitions, first int) []int {
	shardOrders.Lock()
	defer shardOrders.Unlock()
	key := [2]int{partitions, first}
	order := shardOrders.byFirst[key]
	if order != nil {
		return order
	}
	slots := make([]int, partitions)
	left := make([]int, partitions)
	for p := range partitions {
		slots[p] = slotOf(p)
		left[p] = p
	}
	for i := range min(partitions, models.ShardsMax) {
		point := slots[first] + int(bits.Reverse16(uint16(i)))*clusterSlots>>16
		nearest := slices.MinFunc(left, func(a, b int) int { return cmp.Compare(slotsApart(slots[a], point), slotsApart(slots[b], point)) })
		order = append(order, nearest)
		left = slices.DeleteFunc(left, func(p int) bool { return p == nearest })
	}
	shardOrders.byFirst[key] = order
	return order
}

var shardOrders = struct { //nolint:gochecknoglobals // worked out once
	sync.Mutex
	byFirst map[[2]int][]int
}{byFirst: make(map[[2]int][]int)}

// clusterSlots is the number of hash slots of every Redis Cluster.
const clusterSlots = 16384

// slotsApart is how far two slots are from each other on a circle of all.
func slotsApart(a, b int) int {
	d := (a - b + 2*clusterSlots) % clusterSlots
	return min(d, clusterSlots-d)
}

// slotOf is the hash slot of a partition in a Redis Cluster.
func slotOf(partition int) int { return slotOfKey(prefix(partition)) }

// slotOfKey is the hash slot of a key of Dibs: CRC16 (XMODEM) of its tag, modulo 16384.
func slotOfKey(key string) int {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	crc := uint16(0)
	for _, c := range []byte(tag) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % clusterSlots)
}

// KeysOf names the keys of a campaign in its partition.
func KeysOf(campaignID string, partition int) CampaignKeys {
	base := prefix(partition) + "c:" + campaignID
	return CampaignKeys{State: base, Users: base + ":users", Keys: base + ":keys", Stream: StreamKey(partition), Waves: base + ":waves", Moves: base + ":moves", Signals: SignalsKey(partition)}
}

// StreamKey names the claim stream of a partition.
func StreamKey(partition int) string { return prefix(partition) + "claims" }

// TrimmedKey names a string of a partition: entries of its claim stream up to this id may have been trimmed. It is missing before
// the first trim.
func TrimmedKey(partition int) string { return prefix(partition) + "trimmed" }

// readerKey names the lease of the reader of a partition in group syncer.
func readerKey(partition int) string { return prefix(partition) + "reader" }

// readersKey names the sorted set of the processes that read the claim streams in group syncer, by when they are forgotten.
const readersKey = "dibs:readers"

// ParkedKey names the stream of what a consumer group could not handle of a claim stream, with the reasons.
func ParkedKey(partition int, group string) string { return StreamKey(partition) + ":parked:" + group }

// ReplaysKey names a hash: id of a parked message of a consumer group that someone wants replayed -> why the replay left it parked; ""
// until a process of the group has replayed it.
func ReplaysKey(group string) string { return "dibs:replays:" + group }

// InfoKey names a hash that tells readers of the claim streams how many there are, in its field partitions.
const InfoKey = "dibs:info"

// noListKey names a list of a partition that never exists, see Scripts.Away.
func noListKey(partition int) string { return prefix(partition) + "nolist" }

func prefix(partition int) string { return "dibs:{p" + strconv.Itoa(partition) + "}:" }

// SignalsKey names a hash of a partition. Its field generation counts how often Redis lost data of it; lots of an older one are away.
// Its field stops counts the lots that were stopped because someone had seen more of them, and that processes are to report. Its field
// offset tells when to ask MySQL for rows, see Scripts.Signal.
func SignalsKey(partition int) string { return prefix(partition) + "signals" }

// settlingKey names the lease of settling the total of a campaign.
func settlingKey(campaignID string) string { return "dibs:settling:" + campaignID }

// consumerKey names the lease of a consumer's name.
func consumerKey(group, name string) string { return "dibs:consumer:" + group + ":" + name }

// LeaderKey names the lease of the syncer that leads.
const LeaderKey = "dibs:leader"

// staged names what is staged for load epoch of a lot.
func (k CampaignKeys) staged(epoch int64) (users, keys, waves string) {
	number := ":" + strconv.FormatInt(epoch, 10)
	return k.Users + number, k.Keys + number, k.Waves + number
}

// Packets names the list of packets that load epoch of a campaign gives away from a time of release on, in milliseconds since 1970;
// 0 is at once. The epoch is in the name so that a load never gives away what an earlier one left.
func (k CampaignKeys) Packets(epoch, releaseMs int64) string {
	return k.State + ":packets:" + strconv.FormatInt(epoch, 10) + ":" + strconv.FormatInt(releaseMs, 10)
}
