package models

// Outcome is the result of one attempt to claim. Outcomes are values, not
// errors: a sold-out campaign is normal. The refusals among them are, letter
// for letter, the codes that storefronts read.
type Outcome string

// The closed list of outcomes.
const (
	OutcomeClaimed             Outcome = "claimed"
	OutcomeReplayed            Outcome = "replayed"
	OutcomeIdempotencyMismatch Outcome = "idempotency_mismatch"
	OutcomeSoldOut             Outcome = "sold_out"
	OutcomeUserLimit           Outcome = "user_limit"
	OutcomeUserDayLimit        Outcome = "user_day_limit"
	OutcomeLimit               Outcome = "limit"   // another limit than those two
	OutcomeInvalid             Outcome = "invalid" // the claim lacks a subject that a limit is by
	OutcomeNotStarted          Outcome = "not_started"
	OutcomeNotReleased         Outcome = "not_released"
	OutcomeEnded               Outcome = "ended"
	OutcomePaused              Outcome = "paused"
	OutcomeClosed              Outcome = "closed"

	// OutcomeAbsent says that Redis does not hold the campaign: its state is
	// unknown, neither full nor sold out.
	OutcomeAbsent Outcome = "absent"
	// OutcomeDamaged says that the script refuses what Redis holds of the
	// campaign: a wrong type, a missing part, text in place of a number.
	// Nothing was changed.
	OutcomeDamaged Outcome = "damaged"
	// OutcomeDry says that a shard has fewer units free than were asked for.
	// Other shards of the campaign may have them.
	OutcomeDry Outcome = "dry"
	// OutcomeRolledBack says that Redis holds an older state of the campaign
	// than the caller has seen: Redis lost claims. Nothing was changed.
	OutcomeRolledBack Outcome = "rolled_back"
)

// Took reports whether the user holds a claim after this outcome: made now, or
// before under the same key.
func (o Outcome) Took() bool { return o == OutcomeClaimed || o == OutcomeReplayed }
