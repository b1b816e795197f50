package client_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/client"
)

func usersFrom(prefix string, n int) (users []string) {
	for i := range n {
		users = append(users, fmt.Sprint(prefix, i))
	}
	return users
}

func TestGather_TheFirstGoesAtOnceAndThoseWhoComeMeanwhileShareTheNextCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t, client.Config{})
		start := time.Now()
		first := claims(t.Context(), c, "c", "a")
		others := claims(t.Context(), c, "c", "b", "c", "d")
		require.Len(t, g.requests(), 1, "they gather")
		require.False(t, g.came[0].batch)
		require.Equal(t, start, g.came[0].at)
		g.came[0].made()
		require.Len(t, g.requests(), 2, "the first is back")
		require.True(t, g.came[1].batch)
		require.Equal(t, []string{"b", "c", "d"}, g.came[1].users)
		g.came[1].made()
		for user, results := range others {
			o := <-results
			require.NoError(t, o.err)
			require.Equal(t, "c-"+user, o.claim.ID, "each has its own")
		}
		require.NoError(t, (<-first["a"]).err)
		require.Zero(t, time.Since(start), "no one waited for a timer")

		claims(t.Context(), c, "c", "e")
		require.Len(t, g.requests(), 3, "idle again: at once")
		g.open()
		require.Zero(t, c.Lanes(), "an idle client keeps nothing")
	})
}

func TestGather_NoClaimIsKeptBackForMoreThanAMillisecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t, client.Config{})
		require.Equal(t, time.Millisecond, client.GatherMost)
		claims(t.Context(), c, "c", "slow")
		for round := range 3 { // the timer is reused
			start := time.Now()
			claims(t.Context(), c, "c", "a")
			pass(client.GatherMost / 2)
			claims(t.Context(), c, "c", "b")
			pass(client.GatherMost/2 - 1)
			require.Len(t, g.requests(), 1+round)
			pass(1)
			require.Len(t, g.requests(), 2+round)
			require.Equal(t, []string{"a", "b"}, g.came[1+round].users)
			require.Equal(t, client.GatherMost, g.came[1+round].at.Sub(start))
		}
		g.open()
	})
}

func TestGather_AFullBatchGoesAtOnceAndNoneIsFuller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for most, cfg := range map[int]client.Config{client.DefaultBatch: {}, 10: {Batch: 10}} {
			c, g := gated(t, cfg)
			start := time.Now()
			claims(t.Context(), c, "c", usersFrom("u", 1+most+most/2)...)
			require.Len(t, g.requests(), 2)
			require.Len(t, g.came[1].users, most)
			require.Zero(t, time.Since(start))
			g.open()
			require.Len(t, g.came, 3)
			require.Len(t, g.came[2].users, most/2)
		}
		c, g := gated(t, client.Config{Connections: 1, Batch: 10})
		claims(t.Context(), c, "c", usersFrom("u", 1+25)...)
		g.open()
		require.Equal(t, []int{1, 10, 10, 5}, sizes(g.came), "nor if they had to wait")
	})
}

func sizes(came []*request) (n []int) {
	for _, r := range came {
		n = append(n, len(r.users))
	}
	return n
}

func TestGather_TurnedOffNobodyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t, client.Config{Batch: 1})
		start := time.Now()
		claims(t.Context(), c, "c", usersFrom("u", 3*client.CallsMost)...)
		require.Len(t, g.requests(), 3*client.CallsMost)
		require.Zero(t, time.Since(start))
		for _, r := range g.came {
			require.False(t, r.batch)
		}
		g.open()
	})
}

func TestGather_CallsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for calls, cfg := range map[int]client.Config{client.CallsMost: {}, 2: {Connections: 8}, 1: {Connections: 1}} {
			c, g := gated(t, cfg)
			for i := range client.CallsMost + 4 {
				claims(t.Context(), c, "c", fmt.Sprint("x", i), fmt.Sprint("y", i))
				pass(2 * client.GatherMost)
			}
			require.Len(t, g.requests(), calls)
			waiting := c.Queued("c")
			g.came[0].made()
			require.Len(t, g.requests(), calls+1, "one came back, one goes")
			require.Len(t, g.came[calls].users, waiting, "with all who waited")
			g.open()
			require.Zero(t, c.Lanes())
		}
	})
}

func TestGather_ClaimsOfACampaignAreBoundedAndWhoLeavesSurelyClaimedNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t, client.Config{Connections: 1})
		for i := range client.LaneMost {
			go func() { _, _ = c.Claim(t.Context(), client.ClaimRequest{CampaignID: "c", UserID: fmt.Sprint("u", i)}) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		turned := claims(ctx, c, "c", "too many")
		let := claims(t.Context(), c, "c", "patient")
		require.Equal(t, client.LaneMost-1, c.Queued("c"))
		queued := claims(ctx, c, "another", "first", "queued")
		for _, o := range []outcome{<-turned["too many"], <-queued["queued"]} {
			require.ErrorIs(t, o.err, client.ErrUnavailable)
			require.ErrorIs(t, o.err, context.DeadlineExceeded)
			require.NotErrorIs(t, o.err, client.ErrOutcomeUnknown)
			require.Equal(t, time.Second, o.after)
		}
		g.open()
		require.NoError(t, (<-let["patient"]).err)
		for _, r := range g.came {
			require.NotContains(t, r.users, "queued")
		}
		require.Zero(t, c.Lanes())
	})
}

func TestGather_WhoLeavesACallInFlightIsToldThatItMayHaveClaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t, client.Config{})
		claims(t.Context(), c, "c", "first")
		ctx, cancel := context.WithCancel(t.Context())
		left := claims(ctx, c, "c", "left")
		stayed := claims(t.Context(), c, "c", "a")
		pass(client.GatherMost)
		cancel()
		var unknown *client.OutcomeError
		require.ErrorAs(t, (<-left["left"]).err, &unknown)
		require.Equal(t, g.requests()[1].keys[0], unknown.Key)
		g.open()
		require.NoError(t, (<-stayed["a"]).err)
		require.Len(t, g.came, 2, "its call went on")
	})
}

// A failed call is one attempt of each of its claims: each retries alone,
// with its own key, doubts and waits.
func TestGather_RetriesAreEachClaimsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sold, later, maybe := refused(409, client.ErrSoldOut), refused(503, client.ErrUnavailable), refused(503, client.ErrOutcomeUnknown)
		plan := map[string][]string{
			"first": {accepted("first")}, "made": {accepted("made")}, "sold": {sold}, "late": {later, later, accepted("late")},
			"never": {later, later, later, later, later}, "doubt": {maybe, later, later, later, later}, "known": {maybe, sold},
		}
		c, g := gated(t, client.Config{})
		first := claims(t.Context(), c, "c", "first")
		results := claims(t.Context(), c, "c", "made", "sold", "late", "never", "doubt", "known")
		attempts := map[string]int{}
		for seen := 0; c.Lanes() > 0 || seen == 0; pass(time.Millisecond) {
			seen = g.answer(seen, func(user string) string {
				attempts[user]++
				return plan[user][attempts[user]-1]
			})
			for range 10_000 { // ten seconds, longer than any wait
				if pass(time.Millisecond); len(g.requests()) > seen {
					break
				}
			}
		}
		require.Len(t, g.came[1].users, 6)
		for user, asked := range attempts {
			require.Len(t, plan[user], asked, user)
		}
		keys := keysOf(g.came)
		for user := range plan {
			require.Len(t, keys[user], 1, "the key of "+user)
		}
		for _, o := range []outcome{<-first["first"], <-results["made"], <-results["late"]} {
			require.NoError(t, o.err)
		}
		for _, user := range []string{"sold", "known"} {
			o := <-results[user]
			require.ErrorIs(t, o.err, client.ErrSoldOut)
			require.NotErrorIs(t, o.err, client.ErrOutcomeUnknown)
		}
		never, doubt := <-results["never"], <-results["doubt"]
		require.ErrorIs(t, never.err, client.ErrUnavailable)
		require.NotErrorIs(t, never.err, client.ErrOutcomeUnknown)
		var unknown *client.OutcomeError
		require.ErrorAs(t, doubt.err, &unknown)
		require.Equal(t, 5, unknown.Attempts)
		require.Contains(t, keys["doubt"], unknown.Key)
	})
}

func keysOf(came []*request) map[string]map[string]bool {
	keys := map[string]map[string]bool{}
	for _, r := range came {
		for i, user := range r.users {
			if keys[user] == nil {
				keys[user] = map[string]bool{}
			}
			keys[user][r.keys[i]] = true
		}
	}
	return keys
}

// If a batch is refused as a whole, each claim must be sent alone.
func TestGather_ARefusedBatchIsAskedForClaimByClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, refused := range map[string]func() (*http.Response, error){
			"a path that a gateway forbids": answered(403, "<html>"), "too large": problem(413, client.ErrTooLarge),
		} {
			c, g := gated(t, client.Config{})
			start := time.Now()
			claims(t.Context(), c, "c", "first")
			results := claims(t.Context(), c, "c", "a", "b")
			g.came[0].made()
			g.requests()[1].answer <- refused
			require.Len(t, g.requests(), 4, name)
			for _, r := range g.came[2:] {
				require.False(t, r.batch)
				require.Equal(t, g.came[1].keys[strings.Index("ab", r.users[0])], r.keys[0])
			}
			g.came[2].made()
			g.came[3].answer <- problem(422, client.ErrInvalid)
			synctest.Wait()
			require.NoError(t, (<-results[g.came[2].users[0]]).err)
			require.ErrorIs(t, (<-results[g.came[3].users[0]]).err, client.ErrInvalid)
			require.Zero(t, time.Since(start), "at once")
		}
	})
}

func TestGather_AnAnswerThatTellsNothingLeavesEachClaimInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, answer := range map[string]func() (*http.Response, error){
			"no JSON": answered(200, "<html>"), "too few": answered(200, `{"results":[]}`), "internal": problem(500, client.ErrInternal),
			"neither": answered(200, `{"results":[{"status":201},{"status":201}]}`),
		} {
			c, g := gated(t, client.Config{})
			claims(t.Context(), c, "c", "first")
			results := claims(t.Context(), c, "c", "a", "b")
			g.came[0].made()
			g.requests()[1].answer <- answer
			for _, user := range []string{"a", "b"} {
				var unknown *client.OutcomeError
				require.ErrorAs(t, (<-results[user]).err, &unknown, name)
				require.Equal(t, g.came[1].keys[strings.Index("ab", user)], unknown.Key)
			}
			require.Len(t, g.requests(), 2, name)
		}
	})
}

func TestGather_EachReplayIsToldFromAClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for header, replayed := range map[string][]bool{
			"": {false, false, false}, "Idempotent-Replayed: true": {true, true, true}, "Idempotent-Replayed-Claims: 010": {false, true, false},
			"Idempotent-Replayed-Claims: 1": {true, false, false},
		} {
			c, g := gated(t, client.Config{})
			claims(t.Context(), c, "c", "first")
			users := []string{"a", "b", "c"}
			results := claims(t.Context(), c, "c", users...)
			g.came[0].made()
			name, value, _ := strings.Cut(header, ": ")
			g.requests()[1].reply(accepted, name, value)
			for i, user := range users {
				require.Equal(t, replayed[i], (<-results[user]).claim.Replayed, header+user)
			}
		}
	})
}
