package bench_test

import (
	"testing"

	"dibs/lua"
	"dibs/models"
)

// benchLimits runs the claim script with two limits of users, and with one by a further subject.
func benchLimits(b *testing.B, s *sheet) {
	r := newBroker(b)
	s.Facts = []string{r.version(b)}
	subject := brokerOn(b, r.server)
	subject.subjects = []string{"device"}
	const two, one = "two limits, 128 a call", "two limits and one by device, 128 a call"
	s.takeTurns([]func(){
		func() { s.script(b, r, two, 128) },
		func() { s.script(b, subject, one, 128) },
	})
	const script = ": in the script"
	s.ratio(b, "script, 128 a call, a further subject / none", one+script, two+script, 0)
	s.note("A further subject may cost 1.5 µs: the difference of the two figures in the script at 128 a call.")
}

// carry has claims carry the subjects that the broker's campaigns limit, each its own.
func (r *broker) carry(reqs []lua.ClaimRequest) []lua.ClaimRequest {
	for i := range reqs {
		for _, name := range r.subjects {
			reqs[i].Subjects = models.Subjects{name: name + "-" + reqs[i].UserID}
		}
	}
	return reqs
}

// limits are the limits by the broker's subjects.
func (r *broker) limits() (all models.Limits) {
	for _, name := range r.subjects {
		all = append(all, models.Limit{By: name, Per: models.PerDay, Max: plenty})
	}
	return all
}
