package cmd

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/config"
)

// remoteTimeout bounds a call: a settlement of a busy day takes minutes.
const remoteTimeout = 6 * time.Minute

// remote is a client of the API of DIBS_URL.
func remote(cfg *config.Config) (*client.Client, error) {
	c, err := client.New(client.Config{BaseURL: cfg.URL, Token: cfg.Token, AttemptTimeout: remoteTimeout, Batch: 1})
	if err != nil {
		return nil, config.Refuse("URL", "or %sTOKEN: %w", config.Prefix, err)
	}
	return c, nil
}

// outputFlag is how an answer is printed.
type outputFlag string

func (f *outputFlag) add(c *cobra.Command) {
	c.Flags().StringVarP((*string)(f), "output", "o", "table", "table, json or csv")
}

func (f *outputFlag) check() error {
	switch *f {
	case "table", "json", "csv":
		return nil
	}
	return fmt.Errorf("%w: --output must be table, json or csv, not %q", ErrUsage, string(*f))
}

// printAs prints rows, or lines of JSON.
func printAs[T any](w io.Writer, as outputFlag, lines []T, header table.Row, rows []table.Row) error {
	if as == "json" {
		return printJSON(w, lines)
	}
	out := NewTable()
	out.AppendHeader(header)
	out.AppendRows(rows)
	text := out.Render
	if as == "csv" {
		text = out.RenderCSV
	}
	_, err := fmt.Fprintln(w, text())
	return err
}
