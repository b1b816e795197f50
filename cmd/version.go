package cmd

import (
	"github.com/spf13/cobra"

	"dibs/internal/build"
	"dibs/internal/printer"
)

func newVersion() *cobra.Command {
	var form printer.Form
	c := &cobra.Command{
		Use: "version", Short: "Print the version, the commit and the date of this program",
		Example: "  dibs version\n  dibs version -o json",
		Args:    asUsed,
		RunE: func(c *cobra.Command, _ []string) error {
			return printer.PrintOne(c.OutOrStdout(), form, build.Of(), "dibs version "+build.Of().String())
		},
	}
	form.Add(c)
	return c
}
