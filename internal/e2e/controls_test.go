package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/api/claiming"
	"dibs/internal/crowd"
	"dibs/lua"
	"dibs/models"
)

// The controls are tests of the tests: each breaks one part in a way that has been someone's bug and expects that the books
// tell of it. The same run with the real part in its place must be clean, or the control says nothing.

// controlWithin is how long a control waits for a drain that does not come.
const controlWithin = 2 * time.Second

// control runs a story with the broken part and again with the real one.
func control(t *testing.T, broken, sound swaps, words string, story func(p *inProcess) books) {
	t.Helper()
	t.Run("broken", func(t *testing.T) {
		t.Parallel()
		b := story(newInProcess(t, broken))
		b.within = controlWithin
		found := b.violations(t.Context())
		requireViolation(t, found, words)
		t.Logf("caught: %q", found)
	})
	t.Run("sound", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, story(newInProcess(t, sound)).violations(t.Context()))
	})
}

// send sends a small crowd and returns what it was told.
func (p *inProcess) send(c campaign, users int) crowd.Tally {
	p.t.Helper()
	tally, err := crowd.Run(p.t.Context(), crowd.Plan{BaseURLs: p.urls, CampaignID: c.ID, Users: users, Connections: 10})
	require.NoError(p.t, err)
	return tally
}

// readThenWrite claims as code without a script does: it looks at the stock, and takes from it a moment later.
type readThenWrite struct {
	rdb    redis.UniversalClient
	moment func(ctx context.Context) error
}

func (c readThenWrite) ClaimAfter(ctx context.Context, m lua.Meta, _ lua.Position, reqs []lua.ClaimRequest) ([]lua.ClaimReply, lua.CampaignView, error) {
	replies := make([]lua.ClaimReply, len(reqs))
	for i := range reqs {
		if err := c.claim(ctx, m, &reqs[i], &replies[i]); err != nil {
			return nil, lua.CampaignView{}, fmt.Errorf("%w: %w", lua.ErrOutcomeUnknown, err)
		}
	}
	return replies, lua.CampaignView{Remaining: 1}, nil // 1: no one is to remember that it is sold out
}

func (c readThenWrite) claim(ctx context.Context, m lua.Meta, req *lua.ClaimRequest, reply *lua.ClaimReply) error {
	keys := lua.KeysOf(m.ID, m.Partition)
	total, err := c.rdb.HGet(ctx, keys.State, "total").Int64()
	taken, takenErr := c.rdb.HGet(ctx, keys.State, "taken").Int64()
	if err = errors.Join(err, takenErr); err != nil {
		return err
	}
	if taken+req.Quantity > total {
		reply.Outcome = models.OutcomeSoldOut
		return nil
	}
	if err := c.moment(ctx); err != nil {
		return err
	}
	seq, err := c.rdb.HIncrBy(ctx, keys.State, "seq", 1).Result()
	if err == nil {
		err = c.rdb.HIncrBy(ctx, keys.State, "taken", req.Quantity).Err()
	}
	if err != nil {
		return err
	}
	now := models.NewTime(time.Now())
	reply.Outcome = models.OutcomeClaimed
	reply.Claim = models.Claim{
		ID: req.ID.String(), CampaignID: m.ID, UserID: req.UserID, Quantity: req.Quantity, Seq: seq, Status: models.ClaimClaimed, ClaimedAt: now,
	}
	payload, err := json.Marshal(models.Event{
		V: models.EventVersion, Type: models.EventClaimAccepted, ID: reply.Claim.ID, CampaignID: m.ID, UserID: req.UserID,
		Quantity: req.Quantity, Seq: seq, At: now,
	})
	if err != nil {
		return err
	}
	return c.rdb.XAdd(ctx, &redis.XAddArgs{Stream: keys.Stream, Values: []any{
		"_watermill_message_uuid", reply.Claim.ID, "metadata", "", "payload", payload,
	}}).Err()
}

// meeting returns a function that lets no one go before n have come.
func meeting(n int64) func(ctx context.Context) error {
	all := make(chan struct{})
	var come atomic.Int64
	return func(ctx context.Context) error {
		if come.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestControlReadThenWriteOversells(t *testing.T) {
	t.Parallel()
	bothHaveLooked := meeting(2)
	broken := swaps{apis: 2, claimer: func(rdb redis.UniversalClient, _ claiming.Claimer) claiming.Claimer {
		return readThenWrite{rdb, bothHaveLooked}
	}}
	control(t, broken, swaps{apis: 2}, "oversold", func(p *inProcess) books {
		p.startConsumer()
		c := openCampaign(p.t, p.urls[0], campaign{Total: 1})
		tally := merged()
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i, url := range p.urls {
			wg.Go(func() {
				got := claimOnce(p.t, url, c.ID, fmt.Sprintf("user-%d", i), 1, "")
				mu.Lock()
				defer mu.Unlock()
				if got.status == http.StatusCreated {
					book1(p.t, &tally, got)
				}
			})
		}
		wg.Wait()
		return p.books(c, tally)
	})
}

// withMaxLen has every script text that passes changed: the stream keeps ten entries.
type withMaxLen struct{ redis.Hook }

func (withMaxLen) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if cmd.Name() == "evalsha" {
			if text, err := textOf(args[1].(string)); err == nil { // scripts of libraries stay as they are
				args[0], args[1] = "eval", text
			}
		}
		return next(ctx, cmd)
	}
}

func (withMaxLen) DialHook(next redis.DialHook) redis.DialHook { return next }

func (withMaxLen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// textOf returns the script with that digest, with MAXLEN where it adds to the stream.
func textOf(digest string) (string, error) {
	for _, name := range []string{"claim", "load", "adjust", "state", "fence", "evict", "forget"} {
		text := lua.Source(name)
		if redis.NewScript(text).Hash() == digest {
			return strings.Replace(text, "'XADD', stream_key, '*'", "'XADD', stream_key, 'MAXLEN', 10, '*'", 1), nil
		}
	}
	return "", fmt.Errorf("no script has the digest %s", digest)
}

func TestControlStreamWithMaxLenHasAHole(t *testing.T) {
	t.Parallel()
	text := lua.Source("claim")
	changed, err := textOf(redis.NewScript(text).Hash())
	require.NoError(t, err)
	require.NotEqual(t, text, changed, "the control must change the script")
	broken := swaps{redis: func(rdb redis.UniversalClient) { rdb.AddHook(withMaxLen{}) }}
	control(t, broken, swaps{}, "accepted claims have no row", func(p *inProcess) books {
		c := openCampaign(p.t, p.urls[0], campaign{Total: 100})
		tally := p.send(c, 30)
		p.startConsumer() // late, as after a redeploy
		return p.books(c, tally)
	})
}
