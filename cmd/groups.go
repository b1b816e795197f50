package cmd

import (
	"context"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/config"
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
		newGroupsChange(env, "add", "Register a group: it gets what the streams hold, and all that follows", (*client.Client).AddGroup),
		newGroupsChange(env, "remove", "Remove a group that nothing reads for any more; what it has not read may be trimmed",
			(*client.Client).RemoveGroup))
	return c
}

func newGroupsList(env Env) *cobra.Command {
	return overHTTP(env, cobra.Command{
		Use: "list", Short: "List the registered groups and how far behind each is, by claim stream", Example: "  dibs groups list -o json",
	}, false, func(ctx context.Context, api *client.Client, _ string, as outputFlag) error {
		groups, err := api.Groups(ctx)
		if err != nil {
			return err
		}
		var rows []table.Row
		for _, g := range groups {
			for _, p := range g.Partitions {
				rows = append(rows, table.Row{g.Name, p.Partition, p.Lag, p.Pending})
			}
		}
		return printAs(env.Stdout, as, groups, table.Row{"group", "partition", "lag", "pending"}, rows)
	})
}

func newGroupsChange(env Env, verb, short string, change func(c *client.Client, ctx context.Context, name string) error) *cobra.Command {
	var name string
	c := command(env, cobra.Command{Use: verb, Short: short, Example: "  dibs groups " + verb + " --group audit"},
		func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
			if name == "" {
				return fmt.Errorf("%w: --group is missing: which group?", ErrUsage)
			}
			api, err := remote(cfg)
			if err != nil {
				return err
			}
			return change(api, ctx, name)
		})
	c.Flags().StringVar(&name, "group", "", "name of the consumer group")
	return c
}
