package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

var errScript = errors.New("the script failed")

// held is a claim script that waits to be let go, and reports how many claims each call had.
type held struct {
	calls chan int
	free  chan error
}

func newHeld() *held { return &held{calls: make(chan int, 100), free: make(chan error, 100)} }

func (h *held) claim(_ context.Context, reqs []lua.ClaimRequest) ([]lua.ClaimReply, error) {
	h.calls <- len(reqs)
	if err := <-h.free; err != nil {
		return nil, err
	}
	replies := make([]lua.ClaimReply, len(reqs))
	for i := range reqs {
		replies[i].Outcome = models.Outcome("for " + reqs[i].UserID)
	}
	return replies, nil
}

// ask has users ask at once, and returns what each was told when all have been.
func ask(b *batcher, users int) (wait func() (replies map[string]lua.ClaimReply, errs map[string]error)) {
	var mu sync.Mutex
	var all sync.WaitGroup
	replies, errs := map[string]lua.ClaimReply{}, map[string]error{}
	for i := range users {
		user := fmt.Sprint("u", i)
		all.Go(func() {
			reply, err := b.ask(context.Background(), lua.ClaimRequest{UserID: user})
			mu.Lock()
			defer mu.Unlock()
			replies[user], errs[user] = reply, err
		})
	}
	return func() (map[string]lua.ClaimReply, map[string]error) {
		all.Wait()
		return replies, errs
	}
}

// Who comes while a call is under way has the next one together, as many as a call takes, and each is told its own answer.
func TestThoseWhoComeDuringACallShareTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		b := &batcher{claim: h.claim}
		first := ask(b, 1)
		require.Equal(t, 1, <-h.calls, "no one waits for company")
		rest := ask(b, lua.ClaimsMax+7)
		synctest.Wait()
		require.Empty(t, h.calls, "one call at a time")
		h.free <- nil
		require.Equal(t, lua.ClaimsMax, <-h.calls)
		h.free <- nil
		require.Equal(t, 7, <-h.calls)
		h.free <- nil
		first()
		replies, errs := rest()
		for user, reply := range replies {
			require.NoError(t, errs[user])
			require.EqualValues(t, "for "+user, reply.Outcome)
		}
		require.Len(t, replies, lua.ClaimsMax+7)
	})
}

func TestAFailedCallFailsAllWhoSharedItAndNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		b := &batcher{claim: h.claim}
		first := ask(b, 1)
		require.Equal(t, 1, <-h.calls)
		second := ask(b, 3)
		synctest.Wait()
		h.free <- nil
		require.Equal(t, 3, <-h.calls)
		h.free <- errScript
		_, errs := first()
		require.NoError(t, errs["u0"])
		_, errs = second()
		for user, err := range errs {
			require.ErrorIs(t, err, errScript, user)
		}
	})
}

func TestWhoLeavesIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		b := &batcher{claim: h.claim}
		ctx, cancel := context.WithCancelCause(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := b.ask(ctx, lua.ClaimRequest{UserID: "leaving"})
			left <- err
		}()
		require.Equal(t, 1, <-h.calls)
		cancel(errScript)
		require.ErrorIs(t, <-left, errScript)
		h.free <- nil
		staying := ask(b, 1)
		require.Equal(t, 1, <-h.calls, "its answer is no one's, and the next is served")
		h.free <- nil
		_, errs := staying()
		require.NoError(t, errs["u0"])
	})
}
