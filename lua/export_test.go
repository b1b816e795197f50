package lua

import (
	"fmt"
	"strings"
	"time"

	"dibs/models"
)

// Sources are the texts of the scripts by name.
func Sources() map[string]string {
	return map[string]string{
		"claim": claimSource, "load": loadSource, "adjust": adjustSource, "state": stateSource,
		"fence": fenceSource, "evict": evictSource, "forget": forgetSource, "release": releaseSource, "push": pushSource,
	}
}

// ClaimOutcomes are the codes that the Go caller knows for one claim, in order.
func ClaimOutcomes() []models.Outcome { return claimOutcomes }

// Statuses are the first elements of a reply that the Go caller knows, by script.
func Statuses() map[string][]int {
	return map[string][]int{
		"claim":  {statusOK, statusAbsent, statusDamaged, statusClock, statusRolledBack},
		"load":   {statusOK, statusThere, statusDamaged, statusIncomplete},
		"adjust": {statusOK, statusAbsent, statusDamaged, statusHeld, statusOther},
		"push":   {statusOK, statusAbsent, statusDamaged, statusPosition, statusOther},
		"state":  {statusOK, statusAbsent, statusDamaged},
		"fence":  {statusOK, statusAbsent, statusDamaged, statusElse},
		"evict":  {statusOK, statusAbsent, statusDamaged, statusElse},
		"forget": {statusOK, statusDamaged, statusElse},

		"release": {statusOK, statusAbsent, statusDamaged, statusElse},
	}
}

// Mutate has s run claim.lua with text replaced by instead. A text that is not there exactly once is an error.
func (s *Scripts) Mutate(text, instead string) error {
	if n := strings.Count(claimSource, text); n != 1 {
		return fmt.Errorf("%d places in claim.lua read %q", n, text)
	}
	s.claim = newScript("claim", strings.Replace(claimSource, text, instead, 1))
	return nil
}

// StartOfDay is startOfDay.
func StartOfDay(y int, m time.Month, d int, zone *time.Location) time.Time {
	return startOfDay(y, m, d, zone)
}
