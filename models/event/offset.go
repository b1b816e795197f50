package event

// NoEntry is the id before a stream's first entry.
const NoEntry = "0-0"

// Offset is the position up to which a claim stream was read or applied. An
// entry id alone is not enough: after losing data, Redis may assign it again.
type Offset struct {
	EntryID string // the last entry's id in Redis; NoEntry is none
	EventID string // of that entry's event
	Read    int64  // entries up to here, counted from the stream's first

	Generation int64          // of the partition there
	State      PartitionState // of the partition
}

// NoOffset is the start of a stream.
func NoOffset() Offset { return Offset{EntryID: NoEntry, State: PartitionOK} }

// IsStart reports whether nothing was read or applied yet.
func (o *Offset) IsStart() bool { return o.EntryID == NoEntry }

// PartitionState is the state of a partition.
type PartitionState string

// The states of a partition.
const (
	PartitionOK PartitionState = "ok"
	// PartitionRecovering: Redis lost data: entries that MySQL lacks are read
	// first.
	PartitionRecovering PartitionState = "recovering"
	PartitionGap        PartitionState = "gap" // MySQL's offset is older than the stream's first entry
)

// Read is the result of one read of a claim stream.
type Read struct {
	Partition int
	Turn      int64  // of the reader, see writer.Begin
	Events    []Raw  // one per entry
	Upto      Offset // the last entry
}
