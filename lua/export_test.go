package lua

import (
	"fmt"
	"io/fs"
	"strings"

	"dibs/models"
)

// Sources are the texts of the scripts by name, of all files.
func Sources() map[string]string {
	files, _ := fs.Glob(sources, "*.lua")
	all := make(map[string]string)
	for _, file := range files {
		name := strings.TrimSuffix(file, ".lua")
		all[name] = embedded(name).source
	}
	return all
}

// ClaimOutcomes are the codes that the Go caller knows for one claim, in order.
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

// Statuses are the first elements of a reply that the Go caller knows, by script.
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

// Mutate has s run claim.lua with text replaced by instead. A text that is not there exactly once is an error.
func (s *Scripts) Mutate(text, instead string) error { return s.claim.mutate(text, instead) }

// MutateRelease is Mutate for release.lua.
func (s *Scripts) MutateRelease(text, instead string) error { return s.release.mutate(text, instead) }

func (s *script) mutate(text, instead string) error {
	if n := strings.Count(s.source, text); n != 1 {
		return fmt.Errorf("%d places in %s.lua read %q", n, s.name, text)
	}
	*s = newScript(s.name, strings.Replace(s.source, text, instead, 1))
	return nil
}

// Texts are the records of users as Redis should hold them.
func (u *UserRecords) Texts() map[string]string {
	texts := make(map[string]string, len(u.byField))
	for field, r := range u.byField {
		texts[field] = string(r.appendTo(nil, u.limits.of(field)))
	}
	return texts
}

// Names that only tests use from outside.
const (
	ReleasedNow    = releasedNow
	ReleasedAway   = releasedAway
	ReleasedBefore = releasedBefore
)

var (
	NoListKey = noListKey
)
