package cmd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"dibs/config"
	"dibs/models"
)

func newGroups(env Env) *cobra.Command {
	c := &cobra.Command{
		Use: "groups", Short: "List, add and remove the consumer groups that the claim streams keep events for",
		Long: `Nothing is trimmed from the claim streams that a registered group has not acknowledged. These commands ask the API of --url,
with an admin's --token; 'list' needs a viewer's.`,
		Example: "  dibs groups list\n  dibs groups add --group audit\n  dibs groups remove --group audit",
		Args:    cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newGroupsList(env),
		newGroupsChange(env, "add", http.MethodPut, "Register a group: it gets what the streams hold, and all that follows"),
		newGroupsChange(env, "remove", http.MethodDelete, "Remove a group that nothing reads for any more; what it has not read may be trimmed"))
	return c
}

func newGroupsList(env Env) *cobra.Command {
	var as string
	c := command(env, cobra.Command{
		Use: "list", Short: "List the registered groups and how far behind each is, by claim stream", Example: "  dibs groups list -o json",
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		var answer struct {
			Groups []models.GroupLag `json:"groups"`
		}
		if as != "table" && as != "json" && as != "csv" {
			return fmt.Errorf("%w: --output must be table, json or csv, not %q", ErrUsage, as)
		}
		if err := callAPI(ctx, cfg, http.MethodGet, "/v1/groups", &answer); err != nil {
			return err
		}
		if as == "json" {
			return printJSON(env.Stdout, answer.Groups)
		}
		return printGroups(env.Stdout, answer.Groups, as == "csv")
	})
	c.Flags().StringVarP(&as, "output", "o", "table", "table, json (a line a group) or csv")
	return c
}

func printGroups(w io.Writer, groups []models.GroupLag, asCSV bool) error {
	out := NewTable()
	out.AppendHeader(table.Row{"group", "partition", "lag", "pending"})
	for _, g := range groups {
		for _, p := range g.Partitions {
			out.AppendRow(table.Row{g.Name, p.Partition, p.Lag, p.Pending})
		}
	}
	text := out.Render
	if asCSV {
		text = out.RenderCSV
	}
	_, err := fmt.Fprintln(w, text())
	return err
}

func newGroupsChange(env Env, verb, method, short string) *cobra.Command {
	var name string
	c := command(env, cobra.Command{Use: verb, Short: short, Example: "  dibs groups " + verb + " --group audit"},
		func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
			if name == "" {
				return fmt.Errorf("%w: --group is missing: which group?", ErrUsage)
			}
			return callAPI(ctx, cfg, method, "/v1/groups/"+url.PathEscape(name), nil)
		})
	c.Flags().StringVar(&name, "group", "", "name of the consumer group")
	return c
}
