package models

// Outcome is the result of one attempt to claim. Outcomes are values, not
// errors: a sold-out campaign is normal. The API sends the refusals' codes
// literally.
type Outcome string

// The closed list of outcomes.
const (
	OutcomeClaimed             Outcome = "claimed"
	OutcomeReplayed            Outcome = "replayed"
	OutcomeIdempotencyMismatch Outcome = "idempotency_mismatch"
	OutcomeSoldOut             Outcome = "sold_out"
	OutcomeUserLimit           Outcome = "user_limit"
	OutcomeUserDayLimit        Outcome = "user_day_limit"
	OutcomeLimit               Outcome = "limit"   // a limit other than those two
	OutcomeInvalid             Outcome = "invalid" // the claim lacks a subject that a limit counts by
	OutcomeNotStarted          Outcome = "not_started"
	OutcomeNotReleased         Outcome = "not_released"
	OutcomeEnded               Outcome = "ended"
	OutcomePaused              Outcome = "paused"
	OutcomeClosed              Outcome = "closed"

	// OutcomeAbsent: Redis doesn't hold the campaign. It may have stock or
	// none.
	OutcomeAbsent Outcome = "absent"
	// OutcomeDamaged: the script refuses the campaign's data in Redis, such
	// as a wrong type, a missing part, or text instead of a number. Nothing
	// was changed.
	OutcomeDamaged Outcome = "damaged"
	// OutcomeDry: the shard has fewer free units than requested. Other shards
	// may have them.
	OutcomeDry Outcome = "dry"
	// OutcomeRolledBack: Redis holds an older state than the caller has seen,
	// so it lost claims. Nothing was changed.
	OutcomeRolledBack Outcome = "rolled_back"
)

// Took reports whether the user holds a claim: a new one, or an earlier one
// under the same key.
func (o Outcome) Took() bool { return o == OutcomeClaimed || o == OutcomeReplayed }
