package recovery

// flaw is a mistake in what carries a step out, or in how a run observes.
type flaw string

const (
	flawless        flaw = ""
	flawLostFirst   flaw = "a lot is lost before it is fenced"
	flawOldTip      flaw = "the fence tip is read before the fence"
	flawNoSeen      flaw = "a load is confirmed whatever callers reported since"
	flawWitnessLate flaw = "what Redis remembers is read after MySQL"
	flawForgets     flaw = "seqs without a row are not kept when the stream is renewed"
	flawRecordFirst flaw = "Redis remembers a stream position before MySQL has it"
)

var flaws = []flaw{flawLostFirst, flawOldTip, flawNoSeen, flawWitnessLate, flawForgets, flawRecordFirst}
