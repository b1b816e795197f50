package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/config"
	"dibs/internal/printer"
)

// remoteTimeout bounds a call: a settlement of a busy day takes minutes.
const remoteTimeout = 6 * time.Minute

// question is a command's call of the API, and how it shows the answer.
type question[T any] struct {
	*client.Client

	c   *cobra.Command
	id  string // its argument
	out *printer.List[T]
}

func overHTTP[T any](env Env, c cobra.Command, v printer.View[T], ask func(ctx context.Context, q *question[T]) error) *cobra.Command {
	var form printer.Form
	made := command(env, c, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		api, err := client.New(client.Config{BaseURL: cfg.URL, Token: cfg.Token, AttemptTimeout: remoteTimeout, Batch: 1})
		if err != nil {
			return fmt.Errorf("%w: --url or %sURL, --token or %[2]sTOKEN: %w", config.ErrConfig, config.Prefix, err)
		}
		return withRemedy(ask(ctx, &question[T]{Client: api, c: c, id: c.Flags().Arg(0), out: printer.New(env.Stdout, form, v)}))
	})
	form.Add(made)
	return made
}

// withRemedy adds to an error about address or token how to set it.
func withRemedy(err error) error {
	_, isAnswered := errors.AsType[*client.Problem](err)
	_, isBroken := errors.AsType[*url.Error](err)
	switch {
	case errors.Is(err, client.ErrUnauthorized), errors.Is(err, client.ErrForbidden):
		return fmt.Errorf("%w Set the token with --token or DIBS_TOKEN", err)
	case isAnswered:
	case isBroken, errors.Is(err, client.ErrAnswer):
		return fmt.Errorf("%w. Set the address with --url or DIBS_URL", err)
	}
	return err
}

func (q *question[T]) show(answer T, err error) error {
	if err != nil {
		return err
	}
	return q.list(answer)
}

func (q *question[T]) list(answers ...T) error {
	if err := q.out.Add(answers...); err != nil {
		return err
	}
	return q.out.End()
}

func given[T any](c *cobra.Command, name string, value *T) *T {
	if c.Flags().Changed(name) {
		return value
	}
	return nil
}
