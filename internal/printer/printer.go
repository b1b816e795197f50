// Package printer prints a command's results: as a table for
// people, as JSON or CSV for programs.
package printer

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"dibs/models"
)

// The output forms.
const (
	Table Form = "table"
	JSON  Form = "json"
	CSV   Form = "csv"
)

// Form is the value of the flag -o.
type Form string

// String returns the form.
func (o *Form) String() string { return string(*o) }

// Type returns the name of the value in help texts.
func (o *Form) Type() string { return "form" }

// Set takes a form.
func (o *Form) Set(form string) error {
	if !slices.Contains([]Form{Table, JSON, CSV}, Form(form)) {
		return errors.New("must be table, json or csv")
	}
	*o = Form(form)
	return nil
}

// Add adds the flag -o, and the older --json that scripts may still use.
func (o *Form) Add(c *cobra.Command) {
	if *o == "" {
		*o = Table
	}
	c.Flags().VarP(o, "output", "o", "table, json or csv")
	c.Flags().BoolFunc("json", "", func(text string) error {
		isOn, err := strconv.ParseBool(text)
		if isOn {
			*o = JSON
		}
		return err
	})
	_ = c.Flags().MarkHidden("json")
}

func (o *Form) cell(value any) any {
	isTable := *o == Table
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

// View defines how values are shown. A value is zero or more rows.
type View[T any] struct {
	Header []string
	Rows   func(value *T, row func(cells ...any))
	// Wide is the number of last columns for CSV only: they don't
	// fit a table.
	Wide int
}

// List prints values: JSON and CSV at once, a table at the end.
type List[T any] struct {
	Form Form
	W    io.Writer

	view View[T]
	csv  *csv.Writer
	rows []table.Row
	nums map[int]bool // columns of numbers

	isStarted bool // the header is printed
}

// New begins a list.
func New[T any](w io.Writer, form Form, v View[T]) *List[T] {
	l := &List[T]{Form: form, W: w, view: v, csv: csv.NewWriter(w), nums: make(map[int]bool)}
	if form != JSON {
		header := make([]any, len(v.Header))
		for i, name := range v.Header {
			header[i] = name
		}
		l.row(header...)
	}
	return l
}

// Add prints values, or stores them for the table.
func (l *List[T]) Add(values ...T) error {
	if l.Form == JSON {
		return PrintJSON(l.W, values...)
	}
	for i := range values {
		l.view.Rows(&values[i], l.row)
	}
	l.csv.Flush()
	return l.csv.Error() //nolint:wrapcheck // a closed terminal
}

func (l *List[T]) row(cells ...any) {
	if l.Form == Table {
		cells = cells[:len(cells)-l.view.Wide]
	}
	row := make(table.Row, len(cells))
	record := make([]string, len(cells))
	for i, value := range cells {
		row[i] = l.Form.cell(value)
		record[i] = fmt.Sprint(row[i])
		switch value.(type) {
		case int64, *int64:
			l.nums[i] = true
		}
	}
	if l.Form == CSV {
		_ = l.csv.Write(record) // Flush reports errors
		return
	}
	l.rows = append(l.rows, row)
}

// End prints the table so far. Later rows follow it without a header.
func (l *List[T]) End() error {
	l.csv.Flush()
	if len(l.rows) == 0 {
		return l.csv.Error() //nolint:wrapcheck // a closed terminal
	}
	t := NewTable()
	t.SetColumnConfigs(l.columns())
	if !l.isStarted {
		t.AppendHeader(l.rows[0])
		l.rows = l.rows[1:]
	}
	t.AppendRows(l.rows)
	l.rows = nil
	l.isStarted = true
	_, err := fmt.Fprintln(l.W, t.Render())
	return err //nolint:wrapcheck // a closed terminal
}

const (
	tableWidth = 100
	leastWidth = 20 // of a last column
)

// columns right-aligns numbers, and wraps the last column to the
// remaining width.
func (l *List[T]) columns() []table.ColumnConfig {
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

// PrintJSON prints each value as a line of JSON.
func PrintJSON[T any](w io.Writer, values ...T) error {
	for i := range values {
		if err := json.NewEncoder(w).Encode(&values[i]); err != nil {
			return fmt.Errorf("printer: %w", err)
		}
	}
	return nil
}

// Print prints all values of a list.
func Print[T any](w io.Writer, form Form, v View[T], values ...T) error {
	l := New(w, form, v)
	if err := l.Add(values...); err != nil {
		return err
	}
	return l.End()
}

// PrintAll prints a list that is read page by page.
func (l *List[T]) PrintAll(values iter.Seq2[T, error]) error {
	for one, err := range values {
		if err == nil {
			err = l.Add(one)
		}
		if err != nil {
			return err
		}
	}
	return l.End()
}

// PrintOne prints a command's only document, an object of plain values; for
// people, in words.
func PrintOne[T any](w io.Writer, form Form, document T, words string) error {
	switch form {
	case JSON:
		return PrintJSON(w, document)
	case CSV:
		return printRecord(w, document)
	case Table:
	}
	_, err := fmt.Fprintln(w, words)
	return err //nolint:wrapcheck // a closed terminal
}

// printRecord prints the fields of a document, by name, as CSV.
func printRecord(w io.Writer, document any) error {
	text, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("printer: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		return fmt.Errorf("printer: %w", err)
	}
	names := slices.Sorted(maps.Keys(fields))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = fmt.Sprint(fields[name])
	}
	return csv.NewWriter(w).WriteAll([][]string{names, values}) //nolint:wrapcheck // a closed terminal
}

// NewTable makes a table in the style of all commands: aligned,
// without a frame.
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

// AlignRight right-aligns columns first to last; a table's first is 1.
func AlignRight(t table.Writer, first, last int) {
	var columns []table.ColumnConfig
	for i := first; i <= last; i++ {
		columns = append(columns, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
}

// Number writes 1234567 as 1,234,567.
func Number[N int | int64](n N) string { return humanize.Comma(int64(n)) }

// Printf prints to people. A closed terminal is no failure of a command.
func Printf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
