package cmd

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"dibs/models"
)

// The forms in which a command prints what it found.
const (
	asTable output = "table"
	asJSON  output = "json"
	asCSV   output = "csv"
)

// output is the value of the flag -o.
type output string

// String returns the form.
func (o *output) String() string { return string(*o) }

// Type returns what a help text says of the value.
func (o *output) Type() string { return "form" }

// Set takes a form.
func (o *output) Set(form string) error {
	if !slices.Contains([]output{asTable, asJSON, asCSV}, output(form)) {
		return errors.New("must be table, json or csv")
	}
	*o = output(form)
	return nil
}

// add adds the flag -o, and the --json that it replaces: scripts have that still.
func (o *output) add(c *cobra.Command) {
	if *o == "" {
		*o = asTable
	}
	c.Flags().VarP(o, "output", "o", "table, json or csv")
	c.Flags().BoolFunc("json", "", func(text string) error {
		isOn, err := strconv.ParseBool(text)
		if isOn {
			*o = asJSON
		}
		return err
	})
	_ = c.Flags().MarkHidden("json")
}

// cell is a value as the form shows it.
func (o *output) cell(value any) any {
	isTable := *o == asTable
	switch v := value.(type) {
	case models.Time:
		return o.cell(v.Time)
	case time.Time:
		if isTable {
			return v.UTC().Format("2006-01-02T15:04:05Z")
		}
		return v.UTC().Format(models.TimeLayout)
	case *int64:
		switch {
		case v != nil:
			return o.cell(*v)
		case isTable:
			return "-"
		}
		return ""
	case int64:
		if isTable {
			return Number(v)
		}
	}
	return value
}

// view is how values are shown: a value is none, one or more rows.
type view[T any] struct {
	header table.Row
	rows   func(value *T, row func(cells ...any))
	// wide is how many columns at the end are for CSV alone: a table has no room for them.
	wide int
}

// list prints values: JSON and CSV as they come, a table in the end.
type list[T any] struct {
	form output
	w    io.Writer
	view view[T]
	csv  *csv.Writer
	rows []table.Row
	nums map[int]bool // the columns of numbers
}

func newList[T any](w io.Writer, form output, v view[T]) *list[T] {
	l := &list[T]{form: form, w: w, view: v, csv: csv.NewWriter(w), nums: make(map[int]bool)}
	if form != asJSON && v.header != nil {
		l.row(v.header...)
	}
	return l
}

func (l *list[T]) add(values ...T) error {
	if l.form == asJSON {
		return printJSON(l.w, values...)
	}
	for i := range values {
		l.view.rows(&values[i], l.row)
	}
	l.csv.Flush()
	return l.csv.Error() //nolint:wrapcheck // a terminal that is gone
}

func (l *list[T]) row(cells ...any) {
	if l.form == asTable {
		cells = cells[:len(cells)-l.view.wide]
	}
	row := make(table.Row, len(cells))
	record := make([]string, len(cells))
	for i, value := range cells {
		row[i] = l.form.cell(value)
		record[i] = fmt.Sprint(row[i])
		switch value.(type) {
		case int64, *int64:
			l.nums[i] = true
		}
	}
	if l.form == asCSV {
		_ = l.csv.Write(record) // Flush tells
		return
	}
	l.rows = append(l.rows, row)
}

// end prints the table so far; what is added afterwards is below it.
func (l *list[T]) end() error {
	l.csv.Flush()
	if len(l.rows) == 0 {
		return l.csv.Error() //nolint:wrapcheck // a terminal that is gone
	}
	t := NewTable()
	t.SetColumnConfigs(l.columns())
	rows := l.rows
	if l.view.header != nil {
		t.AppendHeader(rows[0])
		rows = rows[1:]
	}
	t.AppendRows(rows)
	l.rows = nil
	l.view.header = nil
	_, err := fmt.Fprintln(l.w, t.Render())
	return err //nolint:wrapcheck // a terminal that is gone
}

const (
	tableWidth = 100
	leastWidth = 20 // of a last column, whatever stands before it
)

// columns aligns the numbers, and wraps the last column to what the others leave of the width.
func (l *list[T]) columns() []table.ColumnConfig {
	var widths []int
	for _, row := range l.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], text.StringWidth(fmt.Sprint(cell)))
		}
	}
	all := make([]table.ColumnConfig, len(widths))
	left := tableWidth
	for i, width := range widths {
		all[i].Number = i + 1
		if l.nums[i] {
			all[i].Align = text.AlignRight
			all[i].AlignHeader = text.AlignRight
		}
		if i == len(all)-1 {
			all[i].WidthMax = max(left, leastWidth)
			all[i].WidthMaxEnforcer = text.WrapSoft
		}
		left -= width + 2
	}
	return all
}

// printJSON prints each value as a line of JSON.
func printJSON[T any](w io.Writer, values ...T) error {
	for i := range values {
		if err := json.NewEncoder(w).Encode(&values[i]); err != nil {
			return fmt.Errorf("cmd: %w", err)
		}
	}
	return nil
}

// printList prints all values of a list.
func printList[T any](w io.Writer, form output, v view[T], values ...T) error {
	l := newList(w, form, v)
	if err := l.add(values...); err != nil {
		return err
	}
	return l.end()
}

// printOne prints the one document of a command, in words to people.
func printOne[T any](w io.Writer, form output, document T, words string) error {
	if form == asJSON {
		return printJSON(w, document)
	}
	printf(w, "%s\n", words)
	return nil
}

// NewTable is how every table of the program looks: aligned, without a frame.
func NewTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = 0
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = "  "
	style.Box.MiddleVertical = ""
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	return t
}

// AlignRight aligns columns to the right, from the first to the last; the first of a table is 1.
func AlignRight(t table.Writer, first, last int) {
	var columns []table.ColumnConfig
	for i := first; i <= last; i++ {
		columns = append(columns, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
}

// Number writes 1234567 as 1,234,567.
func Number[N int | int64](n N) string { return humanize.Comma(int64(n)) }

// printf prints to people. A terminal that is gone is no failure of a command.
func printf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
