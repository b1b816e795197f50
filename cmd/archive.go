package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"dibs/internal/config"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/lots"
	"dibs/syncer/retention"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

// archiveFlags are what `dibs archive` takes beside the settings.
type archiveFlags struct {
	before, campaign string
	json             bool
}

func newArchive(env Env) *cobra.Command {
	var flags archiveFlags
	var c *cobra.Command
	c = command(env, cobra.Command{
		Use:   "archive",
		Short: "Move claims of closed campaigns out of the table claims, to claims_archive",
		Long: `Moves claims of closed campaigns away that were made before a time, to the table claims_archive. It works in transactions of
1,000 claims with pauses between them, beside anything else, and may be interrupted, killed and started again: no claim is
lost, or there twice.

The counters of a campaign count archived claims still (archived_claims says how many they are), so that reconcile and
its repair agree with them. A closed campaign takes no claims, and so needs no idempotency keys. An archived claim can't be
looked up, redeemed or released over HTTP any more: 404 claim_not_found. Claims whose hold is open stay until it ends.

A campaign that can't be archived now is told with the reason; named by --campaign it is a failure.`,
		Example: "  dibs archive --before 2026-01-01T00:00:00Z\n" +
			"  dibs archive --before 2026-01-01 --campaign spring-sale --json",
	}, needsServers(func(ctx context.Context, cfg *config.Config) error {
		before, err := parseBefore(flags.before)
		if err != nil {
			return err
		}
		if c.Flags().Changed("campaign") {
			if err := models.CheckCampaignID(flags.campaign); err != nil {
				return usagef("--campaign %q: %w", flags.campaign, err)
			}
		}
		return withStack(ctx, env, cfg, func(s *stack) error { return s.archive(ctx, env, before, flags) })
	}))
	c.Flags().StringVar(&flags.before, "before", "", "claims made before this time, RFC 3339 or a day in UTC; required")
	c.Flags().StringVar(&flags.campaign, "campaign", "", "id of one campaign; all closed ones unless given")
	c.Flags().BoolVar(&flags.json, "json", false, "print JSON, one line a campaign")
	return c
}

func parseBefore(text string) (time.Time, error) {
	if at, err := models.ParseTime(text); err == nil {
		return at, nil
	}
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, nil
	}
	return time.Time{}, usagef("--before %q: a time such as 2026-01-01T00:00:00Z is required", text)
}

// archived says what became of a campaign.
type archived struct {
	CampaignID string `json:"campaign_id"`
	Archived   int64  `json:"archived"` // claims, by this run
	Left       int64  `json:"left"`     // claims in the table claims
	Why        string `json:"why"`      // it was not archived; "" is that it was
}

func (s *stack) archive(ctx context.Context, env Env, before time.Time, flags archiveFlags) (err error) {
	ids, err := s.closedIDs(ctx, flags.campaign)
	if err != nil {
		return err
	}
	evictor := lots.NewKeeper(s.loader, lots.MinIdle, nil)
	archiver := retention.NewArchiver(s.db, func(ctx context.Context, id string) error {
		_, err := evictor.EvictOne(ctx, id)
		return err
	}, s.archiveProgress(ctx, env, ids))
	var all []archived
	for _, id := range ids {
		n, err := archiver.Archive(ctx, id, before)
		one := archived{CampaignID: id, Archived: n}
		switch {
		case errors.Is(err, retention.ErrNotArchivable) && flags.campaign == "":
			one.Why = err.Error()
		case err != nil:
			return err
		}
		if err := sqlstore.On(s.db.WithContext(ctx)).Scan(&one.Left, "SELECT COUNT(*) FROM claims WHERE campaign_id = ?", id); err != nil {
			return fmt.Errorf("cmd: archive: %w", err)
		}
		if flags.json {
			if err := printJSON(env.Stdout, []archived{one}); err != nil {
				return err
			}
		}
		all = append(all, one)
	}
	if !flags.json {
		printArchived(env.Stdout, all)
	}
	return nil
}

// archiveProgress reports how many claims are archived, of those that there are.
func (s *stack) archiveProgress(ctx context.Context, env Env, ids []string) func(claims int) {
	var total, done int
	if len(ids) > 0 {
		// A figure for people: without it there is no total.
		_ = sqlstore.On(s.db.WithContext(ctx)).Scan(&total,
			"SELECT COALESCE(SUM(synced_seq - archived_claims), 0) FROM campaigns WHERE id IN ?", ids)
	}
	last := time.Now()
	return func(claims int) {
		done += claims
		if time.Since(last) >= plainEvery {
			last = time.Now()
			printf(env.Stderr, "archived %s of %s claims\n", Number(done), Number(total))
		}
	}
}

// closedIDs is one campaign that there is, or all that are closed.
func (s *stack) closedIDs(ctx context.Context, one string) (ids []string, err error) {
	if one != "" {
		return s.campaignIDs(ctx, one)
	}
	for page, err := range sqlstore.Pages(sqlstore.Itself, func(after string) (page []string, err error) {
		err = sqlstore.On(s.db.WithContext(ctx)).Scan(&page, "SELECT DISTINCT campaign_id FROM defined_lots WHERE status = ? AND campaign_id > ?"+
			" AND (shards = 1 OR shard > 0) AND synced_seq > archived_claims"+
			" ORDER BY campaign_id LIMIT ?", models.StatusClosed, after, listAtOnce)
		return page, err
	}) {
		if err != nil {
			return nil, fmt.Errorf("cmd: archive: %w", err)
		}
		ids = append(ids, page...)
	}
	return ids, nil
}

func printArchived(w io.Writer, all []archived) {
	out := NewTable()
	out.AppendHeader(table.Row{"campaign", "archived", "left", "why"})
	for i := range all {
		out.AppendRow(table.Row{all[i].CampaignID, Number(all[i].Archived), Number(all[i].Left), all[i].Why})
	}
	_, _ = fmt.Fprintln(w, out.Render())
}
