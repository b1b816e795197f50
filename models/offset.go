package models

// NoEntry is the id before the first entry of any stream.
const NoEntry = "0-0"

// Offset is how far a claim stream has been read or applied.
// An id alone names no entry: Redis may give it again after it lost the entry.
type Offset struct {
	EntryID string // of the last entry, as Redis writes it; NoEntry is none
	EventID string // of that entry's event
	Read    int64  // entries up to here since the stream began

	Generation int64          // of the partition there
	State      PartitionState // of the partition
}

// NoOffset is where a stream begins.
func NoOffset() Offset { return Offset{EntryID: NoEntry, State: PartitionOK} }

// IsStart reports whether nothing was read or applied yet.
func (o *Offset) IsStart() bool { return o.EntryID == NoEntry }

// StreamRead is what one read of a claim stream returned.
type StreamRead struct {
	Partition int
	Turn      int64      // of the reader, see writer.Begin
	Events    []RawEvent // one an entry
	Upto      Offset     // the last entry
}
