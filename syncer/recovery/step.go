package recovery

// Policy says how far a run may go.
type Policy int

// The policies, the strictest first.
const (
	Auto   Policy = iota // no one asked: only what is proven
	Repair               // `dibs reconcile --repair`
	GiveUp               // `dibs reconcile --repair --give-up-claims`
)

// String is the policy as an operator knows it.
func (p Policy) String() string { return [...]string{"auto", "--repair", "--give-up-claims"}[p] }

// Action is what is done in a step.
type Action string

// The actions of both tables. The text is what the documentation and the log show.
const (
	None         Action = "none"
	Refuse       Action = "refuse"
	ObserveAgain Action = "observe again"

	WaitReplica   Action = "wait: replica"
	WaitLoader    Action = "wait: loader"
	WaitConsumers Action = "wait: consumers"

	BeginGeneration Action = "begin generation"
	RecordStream    Action = "record stream"
	StopPartition   Action = "stop partition"

	RecordSeen        Action = "record seen"
	Push              Action = "push packets"
	Adjust            Action = "adjust"
	RecordApplied     Action = "record applied"
	Evict             Action = "evict"
	RecordEviction    Action = "record eviction"
	Fence             Action = "fence"
	MarkLost          Action = "mark lost"
	Load              Action = "load" // begin, stage, put in force
	Confirm           Action = "confirm"
	CountRows         Action = "count rows"
	RestoreParked     Action = "restore parked"
	RestoreStream     Action = "restore from stream"
	RestoreRecords    Action = "restore from records"
	CorrectCounters   Action = "correct counters"
	RenumberDisplaced Action = "renumber displaced"
	GiveUpClaims      Action = "give up claims"
	GiveUpUnrecorded  Action = "give up unrecorded"
	GiveUpParked      Action = "give up parked"

	next Action = "" // the row does not concern the policy
)

// Step is the decision for one observation.
type Step struct {
	Action Action
	Row    string // of the table, such as L9
	Epoch  int64  // of Load and Confirm: the number of the load
}
