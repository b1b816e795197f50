package lua_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

// gapMax is how long no claim may succeed while a slot moves. A second
// is promised; a busy machine gets another.
const gapMax = 2 * time.Second

// The slot of a campaign moves to nodes without the scripts and back,
// key by key, during claims. No claim is refused for long, none is
// unknown, and none is made twice.
func TestCluster_ClaimsGoOnWhileTheirSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := testenv.RedisReplicatedCluster(t, 3, 5*time.Second, "repl-diskless-sync-delay 0")
	scripts, err := lua.New(connect(t, cluster.URL()), lua.Options{Partitions: 8})
	require.NoError(t, err)
	c := models.Campaign{ID: testenv.UniqueID(t, "c"), Kind: models.KindCoupon, Status: models.StatusOpen, Total: 1_000_000, TimeZone: "UTC"}
	c.Partition = lua.PartitionOf(c.ID, 8)
	_, err = scripts.Load(t.Context(), &c)
	require.NoError(t, err)
	meta, err := scripts.MetaOf(&c)
	require.NoError(t, err)
	r := &claimRush{}
	ctx, stop := context.WithCancel(t.Context())
	for g := range 4 {
		r.group.Go(func() { r.run(ctx, fmt.Sprint("u", g), scripts, meta) })
	}
	for range 2 {
		cluster.MoveSlot(lua.StreamKey(c.Partition), 50*time.Millisecond)
	}
	stop()
	r.group.Wait()
	require.NoError(t, r.unknown)
	state, err := scripts.State(t.Context(), c.ID)
	require.NoError(t, err)
	require.Equal(t, r.made, state.Seq, "each once")
	require.Positive(t, r.made)
	require.Zero(t, r.refused, "a slot of few keys moves within the time that a call waits for it")
	require.Less(t, r.gap, gapMax)
	t.Logf("%d claims, %d refused, longest time without one %s", r.made, r.refused, r.gap)
}

// A claim that takes the last packet of a list removes the list. While
// the slot moves, its primary asks another one for a missing key. A
// script can't do that, so it must not need to after it has written.
func TestCluster_TheLastPacketsAreTakenWhileTheirSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := testenv.RedisReplicatedCluster(t, 3, 5*time.Second, "repl-diskless-sync-delay 0")
	p := newPackets(t, connect(t, cluster.URL()))
	p.push(0, "a", 1, "b", 2)
	p.push(time.Minute, "c", 3)
	p.push(time.Hour, "d", 4)
	require.Equal(t, []string{"a:1"}, p.take("ada"))
	p.at(2 * time.Minute)
	move := cluster.BeginMove(p.s.KeysOf(p.c.ID).State)
	require.Equal(t, []string{"b:2", "c:3", "not_released"}, p.take("bob", "cy", "dan"))
	move(0)
	p.at(2 * time.Hour)
	require.Equal(t, []string{"d:4", "sold_out"}, p.take("dan", "eve"))
}

type claimRush struct {
	group sync.WaitGroup

	mu            sync.Mutex
	made, refused int64
	last          time.Time
	gap           time.Duration
	unknown       error
}

func (r *claimRush) run(ctx context.Context, user string, scripts *lua.Scripts, meta lua.Meta) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		_, _, err := scripts.Claim(call, meta, []lua.ClaimRequest{want(user, 1, "")})
		cancel()
		r.count(err)
	}
}

func (r *claimRush) count(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, lua.ErrUnavailable):
		r.refused++
	case err != nil:
		r.unknown = err
	default:
		now := time.Now()
		if !r.last.IsZero() {
			r.gap = max(r.gap, now.Sub(r.last))
		}
		r.made, r.last = r.made+1, now
	}
}
