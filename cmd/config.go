package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"dibs/internal/config"
	"dibs/internal/printer"
)

func newConfig(env Env) *cobra.Command {
	var form printer.Form
	c := command(env, cobra.Command{
		Use:     "config",
		Short:   "Print the settings in force, where each comes from and what it means; secrets are masked",
		Example: "  dibs config\n  dibs config -o json\n  DIBS_PARTITIONS=4 dibs config --flush-size 1000",
	}, func(_ context.Context, _ *cobra.Command, cfg *config.Config) error {
		if form == printer.JSON {
			return printer.PrintJSON(env.Stdout, cfg.Sources())
		}
		return printer.Print(env.Stdout, form, printer.View[config.Source]{
			Header: []string{"setting", "value", "from", "meaning"},
			Rows:   func(s *config.Source, row func(...any)) { row(s.Variable, s.Value, s.From, s.Meaning) },
		}, cfg.Sources()...)
	})
	form.Add(c)
	return c
}
