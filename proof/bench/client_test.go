package bench_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/client"
	"dibs/lua"
)

const clientCallers = 200

// storefront is a program with two clients of the whole: one
// whose claims share requests and one whose claims don't.
type storefront struct {
	*whole

	shared, single *client.Client
	users          atomic.Int64
}

// benchClient runs the same callers on both kinds of clients.
func benchClient(b *testing.B, s *sheet) {
	f := &storefront{whole: newWhole(b)}
	s.Facts = f.facts(b)
	f.startBoth(b)
	f.shared = f.connect(b, client.Config{})
	f.single = f.connect(b, client.Config{Batch: 1})
	shared, single := fmt.Sprintf("shared requests, %d callers", clientCallers), fmt.Sprintf("a request a claim, %d callers", clientCallers)
	s.takeTurns([]func(){
		func() { f.rush(b, s, single, f.single) },
		func() { f.rush(b, s, shared, f.shared) },
		func() { f.idle(b, s) },
	})
	s.ratio(b, shared+" / a request a claim", shared, single, 3)
	s.ratio(b, "one caller: p50, shared requests / a request a claim", "one caller, shared requests: p50", "one caller, a request a claim: p50", 0)
	s.note("`dibs api` and `dibs consumer` as built for production; Redis, SQL server and the callers share the cores with them.")
	s.note("Each caller claims again as soon as it is answered, each time for a user of its own; only accepted claims count.")
	s.note("One caller: claims alternately through both clients, one at a time. The aim is at most 0.2 ms added.")
}

func (f *storefront) connect(b *testing.B, cfg client.Config) *client.Client {
	b.Helper()
	cfg.BaseURL = "http://" + f.api.addr
	c, err := client.New(cfg)
	require.NoError(b, err)
	b.Cleanup(c.Disconnect)
	return c
}

func (f *storefront) claim(ctx context.Context, c *client.Client, campaignID string) error {
	_, err := c.Claim(ctx, client.ClaimRequest{CampaignID: campaignID, UserID: fmt.Sprintf("user-%d", f.users.Add(1))})
	return err
}

// rush runs many callers for a time, and waits until MySQL has all claims.
func (f *storefront) rush(b *testing.B, s *sheet, name string, c *client.Client) {
	b.Helper()
	id := f.create(b)
	own, api := cpuOf(b, os.Getpid()), f.api.cpu(b)
	started := time.Now()
	until := started.Add(span(3 * time.Second))
	var took [clientCallers][]float64
	var g errgroup.Group
	for i := range took {
		g.Go(func() error {
			for before := time.Now(); before.Before(until); {
				if err := f.claim(b.Context(), c, id); err != nil {
					return err
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(before).Seconds()*1000)
				before = now
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
	latencies := slices.Sorted(slices.Values(slices.Concat(took[:]...)))
	accepted := int64(len(latencies))
	s.add(name, "claims/s", float64(accepted)/time.Since(started).Seconds())
	s.add(name+": p50", "ms", latencies[len(latencies)/2])
	s.add(name+": p99", "ms", latencies[len(latencies)*99/100])
	s.add(name+": CPU of the callers", "µs/claim", perClaim(cpuOf(b, os.Getpid())-own, accepted))
	s.add(name+": CPU of the API", "µs/claim", perClaim(f.api.cpu(b)-api, accepted))
	f.booked(b, id, accepted)
	s.add(name+": booked", "claims/s", float64(accepted)/time.Since(started).Seconds())
}

func (f *storefront) booked(b *testing.B, id string, accepted int64) {
	b.Helper()
	require.Equal(b, accepted, f.untilDrained(b, id))
	f.store.requireBooked(b, lua.Meta{ID: id}, accepted)
}

// idle is one caller, for whom either client is idle.
func (f *storefront) idle(b *testing.B, s *sheet) {
	b.Helper()
	id := f.create(b)
	clients := []*client.Client{f.single, f.shared}
	var took [2][]float64
	for until := time.Now().Add(span(3 * time.Second)); time.Now().Before(until); {
		for i, c := range clients {
			before := time.Now()
			require.NoError(b, f.claim(b.Context(), c, id))
			took[i] = append(took[i], time.Since(before).Seconds()*1000)
		}
	}
	s.add("one caller, a request a claim: p50", "ms", median(took[0]))
	s.add("one caller, shared requests: p50", "ms", median(took[1]))
	s.add("one caller: p50 added", "ms", median(took[1])-median(took[0]))
	f.booked(b, id, int64(len(took[0])+len(took[1])))
}
