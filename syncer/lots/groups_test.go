package lots_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/syncer/lots"
)

// Lots without claims that are requested during other loads share one
// load, even if each of the first was alone.
func TestLoad_OfLotsThatAreAskedForTogether(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	repo := syncertest.NewCampaigns(t, h.DB, h.Scripts)
	ids := make([]string, 30)
	for i := range ids {
		ids[i] = testenv.UniqueID(t, "cold")
		_, _, err := repo.Create(t.Context(), syncertest.CampaignOf(ids[i], 10))
		require.NoError(t, err)
	}
	h.Sync()
	loader := h.Loader()
	var numbered atomic.Int64
	goOn := make(chan struct{})
	var applying sync.Mutex
	loader.Observe(func(step string) {
		switch {
		case step == "numbered" && numbered.Add(1) <= lots.GroupsMax:
			<-goOn
		case step == "loaded": // the next group waits for MySQL
			applying.Lock()
			defer applying.Unlock()
			h.Sync()
		}
	})
	var loading sync.WaitGroup
	load := func(id string) {
		loading.Go(func() {
			_, err := loader.Load(t.Context(), id)
			require.NoError(t, err)
		})
	}
	for i, id := range ids {
		load(id)
		if i < lots.GroupsMax {
			require.Eventually(t, func() bool { return numbered.Load() == int64(i+1) }, 20*time.Second, time.Millisecond)
		}
	}
	require.Eventually(t, func() bool { return loader.Waiting() == len(ids)-lots.GroupsMax }, 20*time.Second, time.Millisecond)
	close(goOn)
	loading.Wait()
	require.LessOrEqual(t, numbered.Load(), int64(lots.GroupsMax+2), "statements are shared")
}
