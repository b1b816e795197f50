package bench_test

import (
	"context"
	"fmt"
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// fixedLimits is the commit whose claim script knew two limits only.
const fixedLimits = "08c106d"

// benchLimits runs the claim script of today and that of two fixed limits on one Redis, in turns, and then with further subjects.
func benchLimits(b *testing.B, s *sheet) {
	r := newBroker(b)
	s.Facts = []string{r.version(b)}
	earlier := brokerOn(b, r.server)
	earlier.rdb.AddHook(&swapScript{from: redis.NewScript(lua.Source("claim")).Hash(), to: earlier.loadCommit(b, fixedLimits)})
	subject := brokerOn(b, r.server)
	subject.subjects = []string{"device"}
	nameOf := func(what string, perCall int) string { return fmt.Sprintf("%s, %d a call", what, perCall) }
	const today, before, one = "two limits", "two limits, " + fixedLimits, "two limits and one by device"
	s.takeTurns([]func(){
		func() { s.script(b, r, nameOf(today, 128), 128) },
		func() { s.script(b, earlier, nameOf(before, 128), 128) },
		func() { s.script(b, r, nameOf(today, 1), 1) },
		func() { s.script(b, earlier, nameOf(before, 1), 1) },
		func() { s.script(b, subject, nameOf(one, 128), 128) },
	})
	const script = ": in the script"
	for _, perCall := range []int{128, 1} {
		s.ratioAtMost(b, fmt.Sprintf("script, %d a call, today / %s", perCall, fixedLimits), nameOf(today, perCall)+script, nameOf(before, perCall)+script, 1.03)
	}
	s.ratio(b, "script, 128 a call, a further subject / none", nameOf(one, 128)+script, nameOf(today, 128)+script, 0)
	s.note("A further subject may cost 1.5 µs: the difference of the two figures in the script at 128 a call.")
}

// loadCommit has Redis know the claim script of a commit, and returns its digest.
func (r *broker) loadCommit(b *testing.B, commit string) string {
	b.Helper()
	text, err := exec.CommandContext(b.Context(), "git", "show", commit+":lua/claim.lua").Output()
	require.NoError(b, err, "commit %s", commit)
	digest, err := r.rdb.ScriptLoad(b.Context(), string(text)).Result()
	require.NoError(b, err)
	return digest
}

// swapScript calls the earlier script in place of today's. It lacks one argument of today's, the names of subjects.
type swapScript struct{ from, to string }

func (*swapScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*swapScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *swapScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	const keysAt, subjectsAt = 2, 11
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if len(args) > keysAt && args[1] == w.from {
			args[1] = w.to
			keys, _ := args[keysAt].(int)
			at := keysAt + keys + subjectsAt
			copy(args[at:], args[at+1:])
			args[len(args)-1] = "" // no claim is traced
		}
		return next(ctx, cmd)
	}
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
