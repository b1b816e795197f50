package residency_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// behind is how late the consumer of a test is, steadily.
const behind = 5 * time.Second

// consumeLate books each entry so long after it was added.
func consumeLate(ctx context.Context, h *syncertest.Stack) error {
	for {
		read, err := h.Redis.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: models.GroupSyncer, Consumer: "late", Streams: []string{lua.StreamKey(0), ">"}, Count: 1, Block: 100 * time.Millisecond,
		}).Result()
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the test is over
		case errors.Is(err, redis.Nil):
			continue
		case err != nil:
			return err
		}
		entry := read[0].Messages[0]
		id, err := lua.ParseEntryID(entry.ID)
		if err != nil {
			return err
		}
		if sleep.For(ctx, time.Until(time.UnixMilli(int64(id.Ms)).Add(behind))) != nil {
			return nil //nolint:nilerr // the test is over
		}
		payload := []byte(fmt.Sprint(entry.Values["payload"]))
		e, err := models.DecodeEvent(payload)
		if err == nil {
			err = syncertest.Submit(ctx, h.Writer, e, payload)
		}
		if err == nil {
			err = h.Redis.XAck(ctx, lua.StreamKey(0), models.GroupSyncer, entry.ID).Err()
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the test is over
		case err != nil:
			return err
		}
	}
}

// A campaign that Redis lost comes back by itself though the consumer is five seconds behind and another campaign of its stream is
// claimed from all the time: it waits for what the stream held when it was fenced, and for nothing later.
func TestProof_WithAConsumerThatIsFiveSecondsBehind(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id, busy := h.Create(5, nil), h.Create(100_000, nil)
	c := h.Campaign(busy)
	meta, err := h.Scripts.MetaOf(&c)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return consumeLate(ctx, h) })
	g.Go(func() error {
		for n := 0; sleep.For(ctx, 50*time.Millisecond) == nil; n++ {
			if _, _, err := h.Scripts.Claim(t.Context(), meta, []lua.ClaimRequest{syncertest.Ask(fmt.Sprint("b", n), "")}); err != nil {
				return err
			}
		}
		return nil
	})
	h.Claim(id, syncertest.Asks("u", 3)...)
	h.Lose(id, syncertest.WholeCampaign)
	started, hydrator := time.Now(), h.Hydrator()
	require.Eventually(t, func() bool {
		_, err := hydrator.Hydrate(t.Context(), id)
		return err == nil
	}, behind+5*time.Second, 100*time.Millisecond)
	t.Logf("back after %s", time.Since(started))
	require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeSoldOut},
		syncertest.OutcomesOf(h.Claim(id, syncertest.Asks("v", 3)...)))
	stop()
	require.NoError(t, g.Wait())
}
