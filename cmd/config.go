package cmd

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"dibs/internal/config"
)

func newConfig(env Env) *cobra.Command {
	var o output
	c := command(env, cobra.Command{
		Use:     "config",
		Short:   "Print the settings in force, where each comes from and what it means; secrets are masked",
		Example: "  dibs config\n  dibs config --json\n  DIBS_PARTITIONS=4 dibs config --flush-size 1000",
	}, func(_ context.Context, c *cobra.Command, cfg *config.Config) error {
		if o.json {
			return printJSON(c.OutOrStdout(), cfg.Sources())
		}
		t := NewTable()
		t.SetColumnConfigs([]table.ColumnConfig{{Number: 4, WidthMax: meaningWidth, WidthMaxEnforcer: text.WrapSoft}})
		t.AppendHeader(table.Row{"setting", "value", "from", "meaning"})
		for _, s := range cfg.Sources() {
			t.AppendRow(table.Row{s.Variable, s.Value, s.From, s.Meaning})
		}
		c.Println(t.Render())
		return nil
	})
	o.addJSON(c, ": a list of {variable, value, from, meaning}")
	return c
}

// meaningWidth keeps the table within 100 columns as long as no value is long.
const meaningWidth = 40
