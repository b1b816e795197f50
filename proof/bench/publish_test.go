package bench_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/require"
)

// Files that -write updates.
const (
	resultsFile = "results.json"
	docFile     = "../../docs/bench.md"
)

// publish prints the tables and obeys the flags.
func publish(b *testing.B, sheets []*sheet) {
	b.Helper()
	fmt.Printf("\n%s\n", strings.Join(machine(), ", "))
	for _, s := range sheets {
		s.Machine = machine()
		fmt.Printf("\n%s: %s\n", s.About, strings.Join(s.Facts, ", "))
		for _, t := range s.tables() {
			fmt.Println(t.Render())
		}
		for _, note := range s.Notes {
			fmt.Println("  " + note)
		}
	}
	if *jsonFlag != "" {
		out, err := json.MarshalIndent(sheets, "", "  ")
		require.NoError(b, err)
		require.NoError(b, os.WriteFile(*jsonFlag, append(out, '\n'), 0o600))
	}
	if *writeFlag {
		require.NoError(b, record(resultsFile, docFile, plotFile, sheets))
	}
}

// record updates the results file, keeping parts that were not
// run, and the summary.
func record(results, doc, picture string, sheets []*sheet) error {
	all := make(map[string]*sheet)
	text, err := os.ReadFile(results)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("%s: %w", results, err)
	}
	for _, s := range sheets {
		all[s.Part] = s
	}
	if text, err = json.MarshalIndent(all, "", " "); err != nil {
		return err
	}
	if err := os.WriteFile(results, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return writeSummary(doc, picture, all)
}

func between(doc, part, body string) (string, error) {
	first := "<!-- figures: " + part + " -->\n"
	last := "<!-- end: " + part + " -->"
	head, rest, found := strings.Cut(doc, first)
	_, tail, ended := strings.Cut(rest, last)
	if !found || !ended {
		return "", fmt.Errorf("no place for the figures of %s: %s… %s", part, first, last)
	}
	return head + first + body + last + tail, nil
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// tables are the ratios, if any, and their figures.
func (s *sheet) tables() []table.Writer {
	var all []table.Writer
	if len(s.Ratios) > 0 {
		t := newTable("compared", "median", "least", "most", "target", "")
		for _, r := range s.Ratios {
			t.AppendRow(append(spread(r.Name, r.Values), r.wanted(), r.verdict()))
		}
		all = append(all, t)
	}
	t := newTable("figure", "median", "least", "most", "unit")
	for _, one := range s.Series {
		t.AppendRow(append(spread(one.Name, one.Values), one.Unit))
	}
	return append(all, t)
}

func newTable(heads ...any) table.Writer {
	t := table.NewWriter()
	t.AppendHeader(heads)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	var columns []table.ColumnConfig
	for i := 2; i <= 5; i++ {
		columns = append(columns, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

func spread(name string, values []float64) table.Row {
	return table.Row{name, digits(median(values)), digits(slices.Min(values)), digits(slices.Max(values))}
}

func (r *ratio) wanted() string {
	if r.Side == "" {
		return ""
	}
	return strings.TrimSpace(string(r.Side) + " " + digits(r.Target) + " " + r.Unit)
}

func (r *ratio) verdict() string {
	switch {
	case r.Side == "":
		return ""
	case r.Side == atLeast && median(r.Values) >= r.Target, r.Side == atMost && median(r.Values) <= r.Target:
		return "met"
	default:
		return "missed"
	}
}

// digits shows three digits, with thousands separated.
func digits(v float64) string {
	if size := math.Abs(v); size < 1000 {
		return fmt.Sprintf("%.*f", max(0, 2-int(math.Floor(math.Log10(max(size, 0.1))))), v)
	}
	whole := fmt.Sprintf("%.0f", v)
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return whole
}

// machine describes the machine without the servers.
func machine() []string {
	return []string{
		counted(runtime.NumCPU(), "core") + " shared by servers, clients and load generator", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// tool finds a program, or fails with how to install it.
func tool(b *testing.B, name, debian string) string {
	b.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		b.Fatalf("%s is not installed: this part needs it (Debian and Ubuntu: apt-get install %s; for the servers themselves: make servers)", name, debian)
	}
	return path
}
