package torture

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A window is a small campaign that a few clients claim from while one fault happens. Its history is short enough to ask porcupine
// whether it is linearizable: whether there is an order of the claims, in keeping with when each was asked and answered, in which every
// answer was right. A claim whose outcome no one knows was made at any time since, or never.

const (
	windowClients = 6
	windowClaims  = 5 // of each client
	windowTries   = 4 // of each claim
	windowTimeout = 10 * time.Second

	chanceOfStock = 0xf000 // the operator's chance is used in the meantime
)

// openWindow opens the campaign; nil: it can't be opened right now.
func (rd *round) openWindow(ctx context.Context, o *operator, i int) *campaign {
	c := &campaign{id: fmt.Sprintf("s%d-r%d-w%d", rd.w.opt.Seed, rd.n, i), users: 1000, window: true, features: []string{kindUnits}}
	opening, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	if err := o.openOne(opening, c, between(rd.rand(chanceOfStock+uint64(i)), 10, 40)); err != nil {
		return nil // its claims would say nothing
	}
	rd.windows = append(rd.windows, c)
	return c
}

// claimInWindow has a few clients claim for about as long as the fault lasts.
func (rd *round) claimInWindow(ctx context.Context, c *campaign, i int, lasts time.Duration) {
	if c == nil {
		return
	}
	var wg sync.WaitGroup
	for n := range windowClients {
		one := rd.newClient(fmt.Sprintf("window-%d", n), chanceOfWindows+uint64(i*windowClients+n))
		wg.Go(func() {
			defer one.close()
			for range windowClaims {
				one.askInWindow(ctx, c)
				wait(ctx, time.Duration(one.r.Int64N(int64(lasts)/windowClaims+int64(time.Millisecond))))
			}
		})
	}
	wg.Wait()
}

func (c *client) askInWindow(ctx context.Context, of *campaign) {
	one := c.fresh(of)
	for range windowTries {
		if c.try(one); one.final() || ctx.Err() != nil {
			return
		}
		wait(ctx, ms(between(c.r, 5, 100)))
	}
}

// claimed is the output of an operation: a seq, or 0 for sold out, or unknown.
type claimed int64

const unknownSeq claimed = -1

// taken is the state of a window: its units that are taken, and the seq of the last claim.
type taken struct{ units, seq int64 }

// model of a campaign whose total never changes.
func model(total int64) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{taken{}} },
		Step: func(state, input, output any) []any {
			s := state.(taken)        //nolint:forcetypeassert // as Init makes it
			quantity := input.(int64) //nolint:forcetypeassert // as history makes them
			got := output.(claimed)   //nolint:forcetypeassert // as history makes them
			fits := s.units+quantity <= total
			after := taken{s.units + quantity, s.seq + 1}
			switch {
			case got == unknownSeq && fits:
				return []any{s, after}
			case got == unknownSeq, got == 0 && !fits:
				return []any{s}
			case got > 0 && fits && int64(got) == after.seq:
				return []any{after}
			default:
				return nil
			}
		},
		Equal: func(a, b any) bool { return a == b },
	}).ToModel()
}

// history is what porcupine is asked about. The claims that sold out the rest later are part of it.
func (rd *round) history(c *campaign) (all []porcupine.Operation) {
	for i, one := range c.allRequests() {
		op := porcupine.Operation{ClientId: i, Input: one.quantity, Call: rd.since(one.tries[0].started), Return: rd.since(one.last().ended)}
		unknown := false
		for j := range one.tries {
			unknown = unknown || doubtful(one.tries[j].code)
		}
		switch last := one.last(); {
		case last.claim != nil:
			op.Output = claimed(last.claim.Seq)
		case last.code == "sold_out": // so an earlier try with this key did not claim either
			op.Output = claimed(0)
			op.Call = rd.since(last.started)
		case unknown:
			op.Output = unknownSeq
			op.Return = math.MaxInt64
		default:
			continue // surely not claimed
		}
		all = append(all, op)
	}
	return all
}

func (rd *round) since(at time.Time) int64 { return at.Sub(rd.open).Nanoseconds() }

// checkWindow asks porcupine.
func (rd *round) checkWindow(c *campaign) {
	rd.report.Windows++
	all := rd.history(c)
	switch porcupine.CheckOperationsTimeout(model(c.total()), all, windowTimeout) {
	case porcupine.Illegal:
		rd.brokenf("I1, I7: the answers of %s (total %d) are in no order right: %s", c.id, c.total(), describe(all))
	case porcupine.Unknown:
		rd.report.Undecided++
	case porcupine.Ok:
	}
}

func describe(all []porcupine.Operation) string {
	var text strings.Builder
	for _, op := range all {
		fmt.Fprintf(&text, " %.1f–%.1fms wants %v got %v;", float64(op.Call)/1e6, float64(min(op.Return, int64(1e12)))/1e6, op.Input, op.Output)
	}
	return text.String()
}
