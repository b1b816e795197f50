package cmd

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"dibs/client"
)

func newGroups(env Env) *cobra.Command {
	return family(cobra.Command{
		Use: "groups", Short: "List, add and remove the consumer groups that the claim streams keep events for",
		Long: `Nothing is trimmed from the claim streams that a registered group has not acknowledged. These commands ask the API of --url,
with an admin's --token; 'list' needs a viewer's.`,
		Example: "  dibs groups list\n  dibs groups add --group audit\n  dibs groups remove --group audit",
	}, newGroupsList(env),
		newGroupsChange(env, "add", "Register a group: it gets what the streams hold, and all that follows", (*client.Client).AddGroup),
		newGroupsChange(env, "remove", "Remove a group that nothing reads for any more; what it has not read may be trimmed",
			(*client.Client).RemoveGroup))
}

func newGroupsList(env Env) *cobra.Command {
	return overHTTP(env, cobra.Command{
		Use: "list", Short: "List the registered groups and how far behind each is, by claim stream", Example: "  dibs groups list -o json",
	}, view[client.Group]{table.Row{"group", "partition", "lag", "pending"}, func(g *client.Group, row func(...any)) {
		for _, p := range g.Partitions {
			row(g.Name, p.Partition, p.Lag, p.Pending)
		}
	}}, func(ctx context.Context, q *question[client.Group]) error {
		groups, err := q.Groups(ctx)
		if err != nil {
			return err
		}
		return q.list(groups...)
	})
}

func newGroupsChange(env Env, verb, short string, change func(*client.Client, context.Context, string) error) *cobra.Command {
	var name string
	c := overHTTP(env, cobra.Command{Use: verb, Short: short, Example: "  dibs groups " + verb + " --group audit"}, view[any]{},
		func(ctx context.Context, q *question[any]) error {
			if name == "" {
				return usagef("--group is missing: which group?")
			}
			return change(q.Client, ctx, name)
		})
	c.Flags().StringVar(&name, "group", "", "name of the consumer group")
	return c
}
