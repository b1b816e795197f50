package resolve_test

import (
	"errors"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/resolve"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestRelay_AClockThatIsWrongDelaysNoRow(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts, err := lua.New(testenv.Redis(t).Client(), lua.Options{})
		require.NoError(t, err)
		for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
			id := putEvent(t, db, "a")
			require.NoError(t, db.Model(&models.OutboxRow{}).Where("id = ?", id).Update("created_at", time.Now().Add(off).UTC()).Error)
		}
		n, err := resolve.NewRelay(db, scripts, nil).Relay(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
	})
}

// No claim of a closed campaign detects that Redis lost the users'
// records, or that a loader left its token. Its releases do: it is
// loaded again, and they are applied.
func TestRelay_AClosedCampaignIsLoadedAgain(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(h *syncertest.Stack, id string) error{
		"it lost a key": func(h *syncertest.Stack, id string) error {
			return h.Redis.Del(h.T.Context(), h.Keys(id).Users).Err()
		},
		"a loader left it": func(h *syncertest.Stack, id string) error {
			_, taken := h.Scripts.Fence(h.T.Context(), "gone", lua.FenceAny, []string{id})
			_, left := h.Scripts.Fence(h.T.Context(), "gone", lua.FenceLeave, []string{id})
			return errors.Join(taken[0], left[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := syncertest.NewStack(t)
			id := h.Create(10, nil)
			claims := h.Take(id, syncertest.Asks("u", 3)...)
			h.Shut(id)
			for _, claim := range claims[:2] {
				require.True(t, killedAt("committed", func(step func(string)) {
					_, _ = resolve.ResolverWithStep(resolver(h), step).Release(t.Context(), claim, "")
				}))
			}
			require.NoError(t, harm(h, id))
			r := relay(h)
			_, _ = r.Relay(t.Context())
			require.Len(t, unapplied(t, h.DB), 2, "without a loader they wait")
			r.LoadBy(h.Loader())
			require.Eventually(t, func() bool {
				_, _ = r.Relay(t.Context())
				h.Sync()
				return len(unapplied(t, h.DB)) == 0
			}, time.Minute, time.Millisecond)
			require.Empty(t, h.Compare(id).Differences)
			state, err := h.Scripts.State(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, []int64{1, 2}, []int64{state.Taken, state.Released})
		})
	}
}
