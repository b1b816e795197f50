package lua_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

type tally struct {
	mu    sync.Mutex
	seqs  map[int64]string // claim id by seq
	users map[string]int64 // units
	units int64
}

func (c *tally) add(reqs []lua.ClaimRequest, replies []lua.ClaimReply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range replies {
		switch r.Outcome {
		case models.OutcomeClaimed:
			if other, ok := c.seqs[r.Claim.Seq]; ok {
				return fmt.Errorf("seq %d was given to %s and %s", r.Claim.Seq, other, r.Claim.ID)
			}
			c.seqs[r.Claim.Seq] = r.Claim.ID
			c.units += r.Claim.Quantity
			c.users[reqs[i].UserID] += r.Claim.Quantity
		case models.OutcomeSoldOut, models.OutcomeUserLimit:
		default:
			return fmt.Errorf("a claim was %s", r.Outcome)
		}
	}
	return nil
}

// forgetScripts flushes Redis' scripts repeatedly until stop is called.
func forgetScripts(t *testing.T, rdb redis.UniversalClient) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for ctx.Err() == nil {
			_ = rdb.ScriptFlush(t.Context()).Err()
		}
	})
	return func() { cancel(); flusher.Wait() }
}

// I1, I3, I5, I7: a crowd on 50 goroutines, with calls of 1 or 128 claims,
// gets exactly the stock. A4: also while Redis forgets the scripts.
func TestRushSellsExactlyTheStock(t *testing.T) {
	const perUser = 3
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, perCall := range []int{1, lua.ClaimsMax} {
			goroutines, units := 50, int64(testenv.Pick(500, 40_000))
			b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.PerUser = units, perUser })
			got := &tally{seqs: map[int64]string{}, users: map[string]int64{}}
			var wg sync.WaitGroup
			stop := forgetScripts(t, rdb)
			for range goroutines {
				wg.Go(func() {
					// more than twice the stock is asked for
					for range int(units)*2/goroutines/perCall + 1 {
						reqs := make([]lua.ClaimRequest, perCall)
						for i := range reqs {
							reqs[i] = want(fmt.Sprint("user", rand.IntN(int(units)*2/perUser)), int64(1+rand.IntN(2)), "")
						}
						replies, _, err := b.s.Claim(t.Context(), b.meta, reqs)
						if err == nil {
							err = got.add(reqs, replies)
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			stop()
			require.False(t, t.Failed(), "a call was not answered, so the sums below can't be right")
			// the crowd is random: what is left
			// of the stock must still be sold
			for i := 0; got.units < units; i++ {
				reqs := wants(fmt.Sprint("late", i), 1)
				require.NoError(t, got.add(reqs, b.claim(reqs...)))
			}
			require.Equal(t, units, got.units)
			require.Equal(t, units, b.state().Taken)
			for user, used := range got.users {
				require.LessOrEqual(t, used, int64(perUser), user)
			}
			b.requireBooks()
			for _, e := range b.events() {
				require.Equal(t, got.seqs[e.Seq], e.ID)
			}
			require.Len(t, b.events(), len(got.seqs))
		}
	})
}

// A history of claims and reads of the state must have an order in
// which one campaign alone would have answered so.
type (
	asked    struct{ units int64 } // 0 reads the state
	answered struct{ seq, taken int64 }
	counted  struct{ seq, taken, total int64 }
)

func linear(total int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return counted{total: total} },
		Step: func(state, input, output any) (bool, any) {
			s, in, out := state.(counted), input.(asked), output.(answered)
			switch {
			case in.units == 0:
				return out.seq == s.seq && out.taken == s.taken, s
			case out.seq == 0: // sold out
				return s.taken+in.units > s.total, s
			default:
				return out.seq == s.seq+1 && s.taken+in.units <= s.total, counted{s.seq + 1, s.taken + in.units, s.total}
			}
		},
	}
}

func TestClaimsAreLinearizable(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		const clients, each, total = 8, 12, 60
		for range testenv.Pick(3, 100) {
			b := newBundle(t, rdb, func(c *models.Campaign) { c.Total = total })
			history := make([][]porcupine.Operation, clients)
			start := time.Now()
			var wg sync.WaitGroup
			for client := range clients {
				wg.Go(func() {
					for i := range each {
						in := asked{int64((client + i) % 4)}
						call := time.Since(start).Nanoseconds()
						out := b.ask(in)
						history[client] = append(history[client], porcupine.Operation{
							ClientId: client, Input: in, Output: out, Call: call, Return: time.Since(start).Nanoseconds(),
						})
					}
				})
			}
			wg.Wait()
			var all []porcupine.Operation
			for _, one := range history {
				all = append(all, one...)
			}
			require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(linear(total), all, 20*time.Second))

			for i := range all { // control: one seq given twice is detected
				if out := all[i].Output.(answered); out.seq > 1 && all[i].Input.(asked).units > 0 {
					all[i].Output = answered{seq: out.seq - 1}
					break
				}
			}
			require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(linear(total), all, 20*time.Second))
		}
	})
}

// ask claims, or reads the state. A failure
// becomes an answer that no campaign gives.
func (b *bundle) ask(in asked) answered {
	if in.units == 0 {
		st, err := b.s.State(b.t.Context(), b.c.ID)
		if err != nil {
			return answered{seq: -1}
		}
		return answered{st.Seq, st.Taken}
	}
	replies, _, err := b.s.Claim(b.t.Context(), b.meta, []lua.ClaimRequest{want("u", in.units, "")})
	if err != nil {
		return answered{seq: -1}
	}
	return answered{seq: replies[0].Claim.Seq}
}
