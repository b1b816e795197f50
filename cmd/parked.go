package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"dibs/consumer"
	"dibs/finance"
	"dibs/internal/audit"
	"dibs/internal/config"
	"dibs/models"
)

// ErrParked says that messages are still parked after a replay.
var ErrParked = errors.New("cmd: still parked")

func newParked(env Env) *cobra.Command {
	var asJSON bool
	c := command(env, cobra.Command{
		Use:   "parked",
		Short: "List the messages that could not be credited, with the reasons",
		Long: `Lists the messages that the finance service has parked because no retry would credit them, oldest first, each with the
reason. They stay until a replay credits them or they are discarded.`,
		Example: "  dibs finance parked\n  dibs finance parked --json",
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		return withFinance(ctx, env, cfg, func(s *stack) error { return s.listParked(ctx, env.Stdout, asJSON) })
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line a message, with its payload")
	return c
}

func newReplay(env Env) *cobra.Command {
	var id string
	var asJSON bool
	c := command(env, cobra.Command{
		Use:   "replay",
		Short: "Credit the parked messages once more; those that go through are parked no longer",
		Long: `Hands parked messages to the finance service's own code once more, after whatever stood in their way is mended. What is
credited is parked no longer; what is refused again stays, with the reason printed. It may be run while the service runs, and
again after a crash: nothing is credited twice. Nothing returns to the claim streams.

Exit code 0: nothing is left. 1: something is.`,
		Example: "  dibs finance replay\n  dibs finance replay --id 019a7b1c-6f0e-7c5b-9a53-0242ac120002",
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		return withFinance(ctx, env, cfg, func(s *stack) error { return s.replay(ctx, env.Stdout, id, asJSON) })
	})
	c.Flags().StringVar(&id, "id", "", "one message, by its own id or its event's; all unless given")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newDiscard(env Env) *cobra.Command {
	var id string
	c := command(env, cobra.Command{
		Use:     "discard",
		Short:   "Delete a parked message for good; it is printed, and credited nowhere",
		Example: "  dibs finance discard --id p0/1763716946123-0",
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		if id == "" {
			return usagef("--id is missing: which message?")
		}
		return withFinance(ctx, env, cfg, func(s *stack) error {
			if err := s.note(ctx, models.AuditParkedDiscarded, finance.Group, id); err != nil {
				return err
			}
			gone, err := s.parkingLot().Discard(ctx, id)
			return errors.Join(err, printJSON(env.Stdout, gone))
		})
	})
	c.Flags().StringVar(&id, "id", "", "the message, by its own id or its event's")
	return c
}

// note writes into the audit log what is about to be done to parked messages. It comes first: what is not noted is not done.
func (s *stack) note(ctx context.Context, action, group, id string) error {
	return audit.NewLog(s.db).Note(ctx, action, struct {
		Group string `json:"group"`
		ID    string `json:"id,omitempty"`
	}{group, id})
}

func (s *stack) parkingLot() *consumer.ParkingLot {
	return consumer.NewParkingLot(s.rdb, s.cfg.Partitions, finance.Group)
}

func (s *stack) listParked(ctx context.Context, w io.Writer, asJSON bool) error {
	var all []consumer.Parked
	for p, err := range s.parkingLot().All(ctx) {
		switch {
		case err != nil:
			return err
		case !asJSON:
			all = append(all, p)
		default:
			if err := printJSON(w, []consumer.Parked{p}); err != nil {
				return err
			}
		}
	}
	if asJSON {
		return nil
	}
	return printParked(w, all)
}

func (s *stack) replay(ctx context.Context, w io.Writer, id string, asJSON bool) error {
	books, err := s.newBooks()
	if err != nil {
		return err
	}
	if err := s.note(ctx, models.AuditParkedReplayed, finance.Group, id); err != nil {
		return err
	}
	sum, err := s.parkingLot().Replay(ctx, id, books.Handle)
	err = errors.Join(err, s.closeBooks(ctx, books))
	if asJSON {
		err = errors.Join(err, printJSON(w, []consumer.Replay{sum}))
	} else {
		printf(w, "credited %s, still parked %s\n", Number(sum.Handled), Number(len(sum.Left)))
		if len(sum.Left) > 0 {
			err = errors.Join(err, printParked(w, sum.Left))
		}
	}
	if len(sum.Left) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d of %d messages", ErrParked, len(sum.Left), len(sum.Left)+sum.Handled))
	}
	return err
}

func printJSON[T any](w io.Writer, lines []T) error {
	encoder := json.NewEncoder(w)
	for i := range lines {
		if err := encoder.Encode(&lines[i]); err != nil {
			return fmt.Errorf("cmd: %w", err)
		}
	}
	return nil
}

func printParked(w io.Writer, list []consumer.Parked) error {
	out := NewTable()
	out.AppendHeader(table.Row{"id", "event", "parked at", "tries", "reason"})
	for _, p := range list {
		out.AppendRow(table.Row{p.ID, p.EventID, p.At.Format(models.TimeLayout), p.Attempts, p.Reason})
	}
	_, err := fmt.Fprintln(w, out.Render())
	return err
}
