package consumer_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// heard is a hook that notes the names of commands.
type heard struct {
	mu    sync.Mutex
	names map[string]bool
}

func (h *heard) note(cmds ...redis.Cmder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cmd := range cmds {
		name := cmd.Name()
		if name == "xgroup" {
			name += " " + strings.ToLower(cmd.Args()[1].(string))
		}
		h.names[name] = true
	}
}

func (h *heard) list() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range h.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (h *heard) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *heard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.note(cmd); return next(ctx, cmd) }
}

func (h *heard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { h.note(cmds...); return next(ctx, cmds) }
}

// The reader needs these commands and no others, on Redis 7.0, on Valkey 8 and on the embedded Redis, which lacks XGROUP SETID. The
// access list of docs/security.md has them.
func TestApplier_Commands(t *testing.T) {
	t.Parallel()
	usual := []string{"exec", "get", "multi", "xgroup create", "xgroup createconsumer", "xgroup setid", "xrange", "xread", "xreadgroup"}
	for name, server := range map[string]struct {
		start func(t *testing.T) redis.UniversalClient
		uses  []string
	}{
		"redis":    {func(t *testing.T) redis.UniversalClient { return testenv.Redis(t).Client() }, usual},
		"valkey":   {func(t *testing.T) redis.UniversalClient { return testenv.RedisWithWaitAOF(t).Client() }, usual},
		"embedded": {func(t *testing.T) redis.UniversalClient { return embedded(t) }, append(slices.Clone(usual), "xgroup destroy")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := server.start(t)
			h := &heard{names: make(map[string]bool)}
			rdb.AddHook(h)
			log := &memoryLog{}
			a := startApplier(t, rdb, log, asIs)
			for n := range 20 {
				a.claim(t, 0, n)
			}
			a.eventually(t, 20)
			require.NoError(t, rdb.XDel(t.Context(), lua.StreamKey(0), log.offset(0).EntryID).Err()) // it looks for an earlier one
			a.claim(t, 0, 20)
			require.Eventually(t, func() bool { return log.rewound() && slices.Contains(log.ids(), claimID(20)) }, patience, patience/10_000)
			a.stop()
			used := slices.DeleteFunc(h.list(), func(name string) bool { return slices.Contains([]string{"hello", "client", "xadd", "xdel"}, name) })
			slices.Sort(server.uses)
			require.Equal(t, server.uses, used)
			if name != "embedded" {
				groups, err := rdb.XInfoGroups(t.Context(), lua.StreamKey(0)).Result()
				require.NoError(t, err)
				require.Equal(t, models.GroupSyncer, groups[0].Name)
				require.Zero(t, groups[0].Pending)
			}
		})
	}
}
