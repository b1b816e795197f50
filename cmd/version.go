package cmd

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"dibs/internal/build"
)

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print the version, the commit and the date of this program",
		Example: "  dibs version\n  dibs version --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !asJSON {
				c.Println("dibs version " + build.Of().String())
				return nil
			}
			text, err := json.Marshal(build.Of())
			if err != nil {
				return fmt.Errorf("cmd: version: %w", err)
			}
			c.Println(string(text))
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
