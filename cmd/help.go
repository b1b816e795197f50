package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dibs/internal/config"
	"dibs/internal/printer"
)

// usage prints a command's own flags, and where to find the settings
// that all commands share.
func usage(c *cobra.Command) error {
	w := c.OutOrStderr()
	if c.Runnable() {
		printer.Printf(w, "Usage:\n  %s\n", c.UseLine())
	}
	if c.HasExample() {
		printer.Printf(w, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		_, _ = fmt.Fprintln(w, "\nCommands:")
		for _, below := range c.Commands() {
			if below.IsAvailableCommand() || below.Name() == "help" {
				printer.Printf(w, "  %-12s %s\n", below.Name(), below.Short)
			}
		}
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings := 0
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if config.IsSetting(f) {
			settings++
			return
		}
		own.AddFlag(f)
	})
	if own.HasAvailableFlags() {
		printer.Printf(w, "\nFlags:\n%s", own.FlagUsages())
	}
	if settings > 0 {
		_, _ = fmt.Fprintln(w, "\nEvery setting is an environment variable and a flag: `dibs help settings` lists them,"+
			" `dibs config` shows those in force.")
	}
	return nil
}

// newHelp refuses an unknown command. cobra's own would show the
// parent's help.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Help about any command; `dibs help settings` lists the settings",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "settings" {
				c.Print("Every setting is an environment variable and a flag of every command:\n\n" + settingFlags().FlagUsages())
				return nil
			}
			found, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			found.InitDefaultVersionFlag()
			return found.Help()
		},
	}
}
