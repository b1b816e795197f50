package models

// GroupSyncer is the consumer group that applies the claim streams to MySQL.
// MySQL keeps its offset.
const GroupSyncer = "syncer"

// GroupNameLength bounds a consumer group's name in MySQL, in bytes.
const GroupNameLength = 255

// GroupLag is the lag of a consumer group.
type GroupLag struct {
	Name       string         `json:"name"`
	Partitions []PartitionLag `json:"partitions" nullable:"false"`
}

// PartitionLag is the lag of a consumer group in one claim stream, in
// entries.
type PartitionLag struct {
	Partition int   `json:"partition"`
	Lag       int64 `json:"lag" doc:"entries that no reader of the group has read"`
	Pending   int64 `json:"pending" doc:"entries that were read and not acknowledged"`
}
