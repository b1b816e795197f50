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

// All keys of campaigns and claim streams are made in this file. A
// campaign's keys have the hash tag of its partition, {p<N>}. So the
// keys of a script share a slot of a Redis Cluster.

// CampaignKeys are the keys of a lot.
type CampaignKeys struct {
	State  string // hash: definition and counters
	Users  string // hash: user id -> the user's record
	Keys   string // hash: digest of the client's key, or claim id -> record of the claim
	Stream string // stream: the claim stream of the partition
	Waves  string // zset: of a packet campaign, list of packets -> its time of release
	Moves  string // zset: of a shard, moves recently credited to the load

	Signals string // hash: of the partition, see SignalsKey
}

// PartitionOf returns the partition of a lot: FNV-1a of the campaign's
// id, modulo the number of partitions. It must never change: existing
// lots are where it put them.
//
// Shards get different partitions while there are enough, spread widely over
// the hash slots, as each primary of a cluster has a range of them.
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

// shardOrder returns the partitions of a campaign's
// shards. The first is given. The others are nearest to
// halves, quarters and so on of the hash slots from there.
//
// Rejected: every second partition. Partitions cluster in some of the
// primaries' equal ranges, so a primary would be left out.
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
		nearest := slices.MinFunc(left, func(a, b int) int {
			return cmp.Compare(slotsApart(slots[a], point), slotsApart(slots[b], point))
		})
		order = append(order, nearest)
		left = slices.DeleteFunc(left, func(p int) bool { return p == nearest })
	}
	shardOrders.byFirst[key] = order
	return order
}

var shardOrders = struct { //nolint:gochecknoglobals // a cache
	sync.Mutex
	byFirst map[[2]int][]int
}{byFirst: make(map[[2]int][]int)}

const clusterSlots = 16384

// slotsApart is the distance of two slots on the circle of all.
func slotsApart(a, b int) int {
	d := (a - b + 2*clusterSlots) % clusterSlots
	return min(d, clusterSlots-d)
}

func slotOf(partition int) int { return slotOfKey(prefix(partition)) }

// slotOfKey is the hash slot of a key of Dibs:
// CRC16 (XMODEM) of its tag, modulo 16384.
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

// KeysOf returns the keys of a lot.
func KeysOf(campaignID string, partition int) CampaignKeys {
	base := prefix(partition) + "c:" + campaignID
	return CampaignKeys{
		State: base, Users: base + ":users", Keys: base + ":keys", Stream: StreamKey(partition),
		Waves: base + ":waves", Moves: base + ":moves", Signals: SignalsKey(partition),
	}
}

// StreamKey names the claim stream of a partition.
func StreamKey(partition int) string { return prefix(partition) + "claims" }

// TrimmedKey names a string: entries up to this id may have been trimmed.
// It is missing before the first trim.
func TrimmedKey(partition int) string { return prefix(partition) + "trimmed" }

func readerKey(partition int) string { return prefix(partition) + "reader" }

// readersKey names the sorted set of the readers in group syncer, by expiry.
const readersKey = "dibs:readers"

// ParkedKey names the stream of entries that a
// consumer group could not handle, with reasons.
func ParkedKey(partition int, group string) string { return StreamKey(partition) + ":parked:" + group }

// ReplaysKey names a hash: id of a parked message that awaits a replay
// -> why the last replay left it parked, or "".
func ReplaysKey(group string) string { return "dibs:replays:" + group }

// InfoKey names a hash for readers of the claim streams. Its field
// partitions is their number.
const InfoKey = "dibs:info"

// noListKey names a list that never exists, see Scripts.Away.
func noListKey(partition int) string { return prefix(partition) + "nolist" }

func prefix(partition int) string { return "dibs:{p" + strconv.Itoa(partition) + "}:" }

// SignalsKey names a hash of a partition. generation counts its losses; lots
// of an older one are away. stops counts stopped lots, and closed ones whose
// packets return: processes then report what they saw of them. offset is
// MySQL's, see Scripts.Signal.
func SignalsKey(partition int) string { return prefix(partition) + "signals" }

func settlingKey(campaignID string) string { return "dibs:settling:" + campaignID }

func consumerKey(group, name string) string { return "dibs:consumer:" + group + ":" + name }

// LeaderKey names the lease of the leading syncer.
const LeaderKey = "dibs:leader"

// staged names the keys that load epoch of a lot is staged in.
func (k CampaignKeys) staged(epoch int64) (users, keys, waves string) {
	number := ":" + strconv.FormatInt(epoch, 10)
	return k.Users + number, k.Keys + number, k.Waves + number
}

// Packets names the list of packets of load epoch that are released at
// a time, in milliseconds since 1970; 0 is at once. The epoch keeps a
// load from giving out what an earlier one left.
func (k CampaignKeys) Packets(epoch, releaseMs int64) string {
	return k.State + ":packets:" + strconv.FormatInt(epoch, 10) + ":" + strconv.FormatInt(releaseMs, 10)
}
