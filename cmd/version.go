package cmd

import (
	"github.com/spf13/cobra"

	"dibs/internal/build"
)

func newVersion() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use: "version", Short: "Print the version, the commit and the date of this program",
		Example: "  dibs version\n  dibs version --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.json {
				return printJSON(c.OutOrStdout(), build.Of())
			}
			c.Println("dibs version " + build.Of().String())
			return nil
		},
	}
	o.addJSON(c, "")
	return c
}
