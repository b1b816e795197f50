package cmd

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"dibs/internal/config"
)

func newConfig(env Env) *cobra.Command {
	var form output
	c := command(env, cobra.Command{
		Use:     "config",
		Short:   "Print the settings in force, where each comes from and what it means; secrets are masked",
		Example: "  dibs config\n  dibs config -o json\n  DIBS_PARTITIONS=4 dibs config --flush-size 1000",
	}, func(_ context.Context, _ *cobra.Command, cfg *config.Config) error {
		if form == asJSON {
			return printJSON(env.Stdout, cfg.Sources())
		}
		return printList(env.Stdout, form, view[config.Source]{
			header: table.Row{"setting", "value", "from", "meaning"},
			rows:   func(s *config.Source, row func(...any)) { row(s.Variable, s.Value, s.From, s.Meaning) },
		}, cfg.Sources()...)
	})
	form.add(c)
	return c
}
