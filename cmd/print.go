package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// output is the form in which a command prints what it found.
type output struct {
	form string // table, json or csv
	json bool   // --json, of commands that have no --output
}

func (o *output) addForm(c *cobra.Command) {
	c.Flags().StringVarP(&o.form, "output", "o", "table", "table, json or csv")
}

func (o *output) addJSON(c *cobra.Command, what string) {
	c.Flags().BoolVar(&o.json, "json", false, "print JSON"+what)
}

func (o *output) check() error {
	o.json = o.form == "json"
	return must("--output", o.json || o.form == "table" || o.form == "csv", "table, json or csv", strconv.Quote(o.form))
}

// view is how values are shown in a table: a value is none, one or more rows.
type view[T any] struct {
	header table.Row
	rows   func(value *T, row func(cells ...any))
}

// list prints values: lines of JSON as they come, or a table in the end.
type list[T any] struct {
	output

	w    io.Writer
	view view[T]
	out  table.Writer
}

func newList[T any](w io.Writer, o output, v view[T]) *list[T] {
	l := &list[T]{output: o, w: w, view: v, out: NewTable()}
	l.out.AppendHeader(v.header)
	return l
}

func (l *list[T]) add(values ...T) error {
	for i := range values {
		if !l.json {
			l.view.rows(&values[i], func(cells ...any) { l.out.AppendRow(cells) })
			continue
		}
		if err := printJSON(l.w, values[i]); err != nil {
			return err
		}
	}
	return nil
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

// end prints the table.
func (l *list[T]) end() error {
	if l.json {
		return nil
	}
	text := l.out.Render
	if l.form == "csv" {
		text = l.out.RenderCSV
	}
	_, err := fmt.Fprintln(l.w, text())
	return err //nolint:wrapcheck // a terminal that is gone
}

// printList prints all values of a list.
func printList[T any](w io.Writer, o output, v view[T], values ...T) error {
	l := newList(w, o, v)
	if err := l.add(values...); err != nil {
		return err
	}
	return l.end()
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
