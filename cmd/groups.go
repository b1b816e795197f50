package cmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/printer"
)

func newGroups(env Env) *cobra.Command {
	return family(cobra.Command{
		Use: "groups", Short: "List, add and remove the consumer groups that the claim streams keep events for",
		Long: `Nothing is trimmed from the claim streams that a registered group has not acknowledged.
These commands ask the API of --url, with an admin's --token; 'list' needs a viewer's.`,
		Example: "  dibs groups list\n  dibs groups add audit\n  dibs groups remove audit",
	}, newGroupsList(env),
		newGroupsChange(env, "add", "Register a group: it gets what the streams hold, and all that follows", (*client.Client).AddGroup),
		newGroupsChange(env, "remove", "Remove a group that nothing reads for any more; what it has not read may be trimmed",
			(*client.Client).RemoveGroup))
}

func newGroupsList(env Env) *cobra.Command {
	return overHTTP(env, cobra.Command{
		Use: "list", Short: "List the registered groups and how far behind each is, by claim stream", Example: "  dibs groups list -o json",
	}, printer.View[client.Group]{Header: []string{"group", "partition", "lag", "pending"}, Rows: func(g *client.Group, row func(...any)) {
		for _, p := range g.Partitions {
			row(g.Name, int64(p.Partition), p.Lag, p.Pending)
		}
	}}, func(ctx context.Context, q *question[client.Group]) error {
		groups, err := q.Groups(ctx)
		if err != nil {
			return err
		}
		return q.list(groups...)
	})
}

type changedGroup struct {
	Group string `json:"group"`
	Is    string `json:"is"` // added or removed
}

func newGroupsChange(env Env, verb, short string, change func(*client.Client, context.Context, string) error) *cobra.Command {
	return overHTTP(env, cobra.Command{Use: verb + " GROUP", Short: short,
		Example: "  dibs groups " + verb + " audit"}, printer.View[changedGroup]{
		Header: []string{"group", "is"}, Rows: func(g *changedGroup, row func(...any)) { row(g.Group, g.Is) },
	}, func(ctx context.Context, q *question[changedGroup]) error {
		return q.show(changedGroup{q.id, strings.TrimSuffix(verb, "e") + "ed"}, change(q.Client, ctx, q.id))
	})
}
