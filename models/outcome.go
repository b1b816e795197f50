package models

// Outcome is what became of one claim attempt. Outcomes are values, not errors: a sold-out campaign is business as usual.
// Except for the last four they are the refusal codes that storefronts read, letter for letter.
type Outcome string

// The closed list of outcomes.
const (
	OutcomeClaimed             Outcome = "claimed"
	OutcomeReplayed            Outcome = "replayed"
	OutcomeIdempotencyMismatch Outcome = "idempotency_mismatch"
	OutcomeSoldOut             Outcome = "sold_out"
	OutcomeUserLimit           Outcome = "user_limit"
	OutcomeUserDayLimit        Outcome = "user_day_limit"
	OutcomeNotStarted          Outcome = "not_started"
	OutcomeNotReleased         Outcome = "not_released"
	OutcomeEnded               Outcome = "ended"
	OutcomePaused              Outcome = "paused"
	OutcomeClosed              Outcome = "closed"

	// OutcomeAbsent says that Redis does not hold the campaign: its state is unknown, neither full nor sold out (I9).
	OutcomeAbsent Outcome = "absent"
	// OutcomeDamaged says that Redis holds something the script refuses to work on: a wrong type, a part that is missing,
	// a number that is none. Nothing was changed.
	OutcomeDamaged Outcome = "damaged"
	// OutcomeRolledBack says that Redis holds an older state of the campaign than the caller has seen: claims were lost. Nothing
	// was changed.
	OutcomeRolledBack Outcome = "rolled_back"
)

// Took tells whether the user holds a claim after this outcome: it was made now, or was made before under the same key.
func (o Outcome) Took() bool { return o == OutcomeClaimed || o == OutcomeReplayed }
