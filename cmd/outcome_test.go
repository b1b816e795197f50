package cmd

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/printer"
	"dibs/syncer/compare"
)

func agreeing() (crowd.Tally, account) {
	return crowd.Tally{Accepted: 2, Units: 3, Refused: map[string]int{"sold_out": 4}}, account{synced: true, Comparison: compare.Comparison{
		Redis: &compare.RedisFigures{Taken: 3, Remaining: 7, Seq: 2}, MySQL: compare.MySQLFigures{Remaining: 7},
		Rows: &compare.RowFigures{Claims: 2, Units: 3},
	}}
}

func TestBooksThatAgreeHaveNoDisagreement(t *testing.T) {
	t.Parallel()
	require.Empty(t, disagreements(agreeing()))
}

func TestEachNumberThatIsOffIsADisagreement(t *testing.T) {
	t.Parallel()
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

func TestTheOutcomeSaysWhetherTheBooksAgree(t *testing.T) {
	t.Parallel()
	tally, books := agreeing()
	var out bytes.Buffer
	printOutcome(&out, tally, books)
	require.Contains(t, out.String(), "the books agree")
	require.Contains(t, out.String(), "refused: sold_out")
	require.NotContains(t, out.String(), "asked again")
	tally.Unready, tally.Unknown = 5, 2
	out.Reset()
	printOutcome(&out, tally, books)
	require.Regexp(t, `503 or no answer: asked again +7\n`, out.String(), "the requests that were sent add up")
	books.Rows.Claims++
	out.Reset()
	printOutcome(&out, tally, books)
	require.Contains(t, out.String(), "THE BOOKS DIFFER")
}

func TestNumbersAreGroupedByThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1200: "-1,200"} {
		require.Equal(t, want, printer.Number(n))
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

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	t.Parallel()
	for _, c := range newRoot(Env{}).Commands() {
		if c.Name() == "help" || c.Hidden {
			continue
		}
		require.NotEmpty(t, c.Short, c.Name())
		require.Contains(t, c.Example, "dibs "+c.Name(), c.Name())
	}
}
