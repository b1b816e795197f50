package cmd

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"dibs/config"
)

func newConfig(env Env) *cobra.Command {
	return command(env, cobra.Command{
		Use:     "config",
		Short:   "Print the settings in force, where each comes from and what it means; secrets are masked",
		Example: "  dibs config\n  DIBS_PARTITIONS=4 dibs config --flush-size 1000",
	}, func(_ context.Context, c *cobra.Command, cfg *config.Config) error {
		t := NewTable()
		t.AppendHeader(table.Row{"setting", "value", "from", "meaning"})
		for _, s := range cfg.Sources() {
			t.AppendRow(table.Row{s.Variable, s.Value, s.From, s.Meaning})
		}
		c.Println(t.Render())
		for _, name := range cfg.Unknown {
			c.PrintErrln("dibs: no such setting: " + name)
		}
		return nil
	})
}

// NewTable is how every table of the program looks: aligned, without a frame.
func NewTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = 0
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Box.MiddleVertical = ""
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	return t
}
