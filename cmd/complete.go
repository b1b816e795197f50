package cmd

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/config"
	"dibs/internal/webhooks"
)

// completeWithin bounds how long a shell waits for names.
const completeWithin = time.Second

// completions find the names for an argument, by its word in Use.
// Flags have the same word in lower case.
var completions = map[string]func(ctx context.Context, api *client.Client, cfg *config.Config, prefix string) []string{
	"CAMPAIGN": campaignsLike, "GROUP": groupNames, "ENDPOINT": endpointNames,
}

// addCompletion adds cobra's command, which refuses bad usage as ours do.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		of := family(cobra.Command{})
		c.Args = of.Args
		c.RunE = of.RunE
		for _, shell := range c.Commands() {
			shell.Args = asUsed
		}
	}
}

// complete lets shells complete names of campaigns, groups and
// endpoints. If a server is unreachable, it completes nothing.
func (env Env) complete(c *cobra.Command) {
	for _, below := range c.Commands() {
		env.complete(below)
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	for what, names := range completions {
		find := func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			cfg, err := config.Load(env.Environ, c.Flags())
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			api, err := client.New(client.Config{BaseURL: cfg.URL, Token: cfg.Token, Attempts: 1, AttemptTimeout: completeWithin})
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			ctx, cancel := context.WithTimeout(c.Context(), completeWithin)
			defer cancel()
			return names(ctx, api, cfg, prefix), cobra.ShellCompDirectiveNoFileComp
		}
		if strings.Contains(c.Use, " "+what) {
			c.ValidArgsFunction = find
		}
		// fails without such a flag
		_ = c.RegisterFlagCompletionFunc(strings.ToLower(what), find)
	}
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "csv"}, cobra.ShellCompDirectiveNoFileComp))
}

func campaignsLike(ctx context.Context, api *client.Client, _ *config.Config, prefix string) (ids []string) {
	page, _ := api.FindCampaigns(ctx, client.CampaignFilter{Text: prefix}, client.Page{})
	for i := range page.Campaigns {
		ids = append(ids, page.Campaigns[i].ID)
	}
	return ids
}

func groupNames(ctx context.Context, api *client.Client, _ *config.Config, _ string) (names []string) {
	groups, _ := api.Groups(ctx)
	for i := range groups {
		names = append(names, groups[i].Name)
	}
	return names
}

func endpointNames(_ context.Context, _ *client.Client, cfg *config.Config, _ string) []string {
	text, _ := os.ReadFile(cfg.WebhooksFile)
	endpoints, _ := webhooks.Parse(text)
	return slices.Sorted(maps.Keys(endpoints))
}
