package logmodel

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	only  = flag.String("only", "", "part of a scenario's name")
	deep  = flag.Bool("deep", false, "the scenarios D1 to D12, in up to 30 million states each")
	rules = flag.String("without", "", "rules to leave out, separated by spaces")
	limit = flag.Int("max", 100_000, "states of one search")
)

const within = 10 * time.Minute // of one search

// The rules must hold in every visited state: all of the small
// scenarios, the nearest ones of the large.
func TestLog_TheRulesHold(t *testing.T) {
	t.Parallel()
	most := *limit
	if *deep {
		most = max(most, 30_000_000)
	}
	for _, s := range scenarios {
		if !strings.Contains(s.name, *only) || s.deep != *deep && *only == "" {
			continue
		}
		r := s.run(most, within, *rules)
		require.Empty(t, r.broken, "%s: %s", s.name, strings.Join(r.trace, "\n"))
		require.Greater(t, r.states, 500, s.name)
		t.Logf("%s: %d states, all of them: %t", s.name, r.states, r.full)
	}
}

// Without a rule the search must find a violation.
func TestLog_EachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(holes, mutants) {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return strings.HasPrefix(s.name, m.in+" ") })
		r := scenarios[i].run(3_000_000, within, m.rules)
		require.NotEmpty(t, r.broken, "%s: %s", m.in, m.why)
		require.Contains(t, r.broken, m.wants, "%s: %s", m.in, m.why)
	}
}

// Without all of these rules at once nothing may break: the
// others imply them.
func TestLog_TheLeanRulesHold(t *testing.T) {
	t.Parallel()
	for _, m := range implied {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return strings.HasPrefix(s.name, m.in+" ") })
		r := scenarios[i].run(*limit, within, m.rules)
		require.Empty(t, r.broken, "%s: %s", m.in, strings.Join(r.trace, "\n"))
	}
}
