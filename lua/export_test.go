package lua

import (
	"fmt"
	"strings"

	"dibs/models"
)

func Sources() map[string]string {
	all := make(map[string]string)
	for _, name := range names() {
		all[name] = Source(name)
	}
	return all
}

func ClaimOutcomes() []models.Outcome {
	var outcomes []models.Outcome
	for code := int64(0); ; code++ {
		outcome, known := outcomeOf(code)
		if !known {
			return outcomes
		}
		outcomes = append(outcomes, outcome)
	}
}

// Statuses are the first elements of replies
// that the Go caller knows, by script.
func Statuses() map[string][]int {
	return map[string][]int{
		"claim":      {statusOK, statusAbsent, statusDamaged, statusClock, statusRolledBack},
		"load":       {statusOK, statusToken, statusGeneration, statusIncomplete},
		"resume":     {statusOK, statusToken, statusGeneration},
		"adjust":     {statusOK, statusAbsent, statusDamaged, statusHeld, statusBusy},
		"push":       {statusOK, statusAbsent, statusDamaged, statusPosition},
		"generation": {statusOK, statusAbsent},
		"pause":      {statusOK, statusClosed, statusDamaged},
		"state":      {statusOK, statusAbsent, statusDamaged},
		"fence":      {statusOK, statusToken, statusElse},
		"evict":      {statusOK, statusElse},

		"release": {statusOK, statusDamaged, statusElse},
		"debit":   {statusOK, statusAbsent, statusDamaged, statusElse},
		"credit":  {statusOK, statusAbsent, statusDamaged, statusElse},
	}
}

// Mutate makes s run a script with text replaced by instead. It fails
// unless claim.lua and release.lua together have the text once.
func (s *Scripts) Mutate(text, instead string) error {
	places := 0
	for _, name := range []string{"claim", "release"} {
		source := Source(name)
		if n := strings.Count(source, text); n > 0 {
			places += n
			s.scripts[name] = newScript(name, strings.Replace(source, text, instead, 1))
		}
	}
	if places != 1 {
		return fmt.Errorf("%d places read %q", places, text)
	}
	return nil
}

const (
	ReleasedNow    = releasedNow
	ReleasedAway   = releasedAway
	ReleasedBefore = releasedBefore
)

var (
	NoListKey = noListKey
	Slot      = slotOfKey
)
