package cmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/printer"
)

func newPackets(env Env) *cobra.Command {
	return family(cobra.Command{
		Use: "packets", Short: "Add packets to a campaign, over HTTP",
		Example: "  dibs packets add rain --count 100 --amount 888800",
	}, newPacketsAdd(env))
}

func newPacketsAdd(env Env) *cobra.Command {
	var n client.NewPackets
	var file, split, release string
	c := overHTTP(env, cobra.Command{
		Use: "add CAMPAIGN", Short: "Add packets to a campaign, all or none",
		Long: `Adds --count packets that --amount is split into, or those of a --file: a list in JSON
such as [{"id": "p1", "amount": 500}]. Amounts are minor units.`,
		Example: "  dibs packets add rain --count 100 --amount 888800 --split random_cut --min 100\n  dibs packets add rain --file packets.json",
	}, printer.View[client.PacketsAdded]{
		Header: []string{"packets", "amount"},
		Rows:   func(p *client.PacketsAdded, row func(...any)) { row(p.Count, p.Amount) },
	}, func(ctx context.Context, q *question[client.PacketsAdded]) error {
		n.Split = client.Split(split)
		at, err := timeOrSpan("--release-at", release, 1)
		err = cmp.Or(err, checkKey(q.c, n.Key))
		switch {
		case err != nil:
			return err
		case !at.IsZero():
			n.ReleaseAt = &at
		}
		if file != "" {
			n.Packets, err = readPackets(file)
			if err != nil {
				return usagef("--file: %w", err)
			}
		}
		return q.show(q.AddPackets(ctx, q.id, n))
	})
	c.Flags().Int64Var(&n.Count, "count", 0, "how many packets")
	c.Flags().Int64Var(&n.Amount, "amount", 0, "of all together, in minor units")
	c.Flags().StringVar(&split, "split", "", "double_mean, random_cut or even")
	c.Flags().Int64Var(&n.Min, "min", 0, "least amount of a packet")
	c.Flags().Int64Var(&n.Max, "max", 0, "largest amount of a packet")
	c.Flags().StringVar(&release, "release-at", "", "when they may be claimed: a time such as 2027-01-31T18:00:00Z, "+
		"or in how long, such as 2h")
	c.Flags().StringVar(&file, "file", "", "a list of packets in JSON, instead of --count")
	c.Flags().StringVar(&n.Key, "key", "", "idempotency key; made up unless given")
	c.MarkFlagsOneRequired("count", "file")
	c.MarkFlagsMutuallyExclusive("count", "file")
	c.MarkFlagsRequiredTogether("count", "amount")
	return c
}

// readPackets refuses an unknown field, as the API does: a release_at of a
// packet must not be ignored.
func readPackets(file string) (packets []client.Packet, err error) {
	text, err := os.ReadFile(file) //nolint:gosec // the caller names it
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&packets); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("goes on after its list")
	}
	return packets, nil
}
