package cmd

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/syncer/compare"
)

func agreeing() (crowd.Tally, account) {
	return crowd.Tally{Accepted: 2, Units: 3, Refused: map[string]int{"sold_out": 4}}, account{synced: true, Comparison: compare.Comparison{
		Redis: &compare.RedisFigures{Taken: 3, Remaining: 7, Seq: 2}, MySQL: compare.MySQLFigures{Remaining: 7},
		Rows: &compare.RowFigures{Claims: 2, Units: 3},
	}}
}

func TestEachNumberThatIsOffIsADisagreement(t *testing.T) {
	t.Parallel()
	require.Empty(t, disagreements(agreeing()))
	for name, spoil := range map[string]func(*crowd.Tally, *account){
		"a claim no one was given": func(_ *crowd.Tally, a *account) { a.Redis.Seq++ },
		"a row too few":            func(_ *crowd.Tally, a *account) { a.Rows.Claims-- },
		"units off in redis":       func(_ *crowd.Tally, a *account) { a.Redis.Taken++ },
		"units of rows off":        func(_ *crowd.Tally, a *account) { a.Rows.Units++ },
		"not in redis":             func(_ *crowd.Tally, a *account) { a.Redis = nil },
		"a comparison that differs": func(_ *crowd.Tally, a *account) {
			a.Differences = []string{"claimed of the campaign: 3 and 4"}
		},
		"still on their way":    func(_ *crowd.Tally, a *account) { a.synced = false },
		"a broken answer":       func(c *crowd.Tally, _ *account) { c.Faults = []string{"x"} },
		"a yes without a claim": func(c *crowd.Tally, _ *account) { c.Accepted++ },
	} {
		tally, books := agreeing()
		spoil(&tally, &books)
		require.NotEmpty(t, disagreements(tally, books), name)
	}
}

func TestThePageForFinanceShowsTheExamplesThatCompile(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/finance.md")
	require.NoError(t, err)
	for _, name := range []string{"readstream", "readbatch"} {
		example, err := os.ReadFile("../docs/examples/" + name + "/main.go")
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(example), "// readme:begin\n")
		code, _, found := strings.Cut(rest, "\n// readme:end")
		require.True(t, found)
		require.Contains(t, string(page), "```go\n"+code+"```")
	}
}
