package cmd

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/config"
)

// remoteTimeout bounds a call: a settlement of a busy day takes minutes.
const remoteTimeout = 6 * time.Minute

// question is what a command asks the API, and how it shows the answer.
type question[T any] struct {
	*client.Client
	output

	c    *cobra.Command
	id   string // its argument
	w    io.Writer
	view view[T]
}

// overHTTP is a command that asks the API of DIBS_URL. A last word of Use in capitals names the one
// id that it takes. Without a view it prints nothing.
func overHTTP[T any](env Env, c cobra.Command, v view[T], ask func(ctx context.Context, q *question[T]) error) *cobra.Command {
	o := output{form: "table"}
	made := command(env, c, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		if err := o.check(); err != nil {
			return err
		}
		api, err := client.New(client.Config{BaseURL: cfg.URL, Token: cfg.Token, AttemptTimeout: remoteTimeout, Batch: 1})
		if err != nil {
			return config.Refuse("URL", "or %sTOKEN: %w", config.Prefix, err)
		}
		return ask(ctx, &question[T]{Client: api, output: o, c: c, id: c.Flags().Arg(0), w: env.Stdout, view: v})
	})
	switch _, takes, _ := strings.Cut(c.Use, " "); takes {
	case "":
	case "CLAIM":
		made.Args = oneArg("name one claim")
	default:
		made.Args = oneArg("name one campaign")
	}
	if v.rows != nil {
		o.addForm(made)
	}
	return made
}

// oneArg refuses everything but one argument, in these words.
func oneArg(words string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s", words)
		}
		return nil
	}
}

// show prints an answer, unless there is none.
func (q *question[T]) show(answer T, err error) error {
	if err != nil {
		return err
	}
	return q.list(answer)
}

// list prints answers, with the header before the first of them.
func (q *question[T]) list(answers ...T) error {
	defer func() { q.view.header = nil }()
	return printList(q.w, q.output, q.view, answers...)
}

// given is what a flag was set to, or nil.
func given[T any](c *cobra.Command, name string, value *T) *T {
	if c.Flags().Changed(name) {
		return value
	}
	return nil
}
