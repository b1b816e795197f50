package lua_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// bytesPerClaimMax is what a claim may cost Redis besides its entry in
// the stream: its user's record and its own.
const bytesPerClaimMax = 200

// Each claim has its own user and a client's key, which costs most.
func TestMemoryPerClaim(t *testing.T) {
	t.Parallel()
	const claims = 10_000
	rdb := connect(t, testenv.Redis(t).URL())
	b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.PerUser, c.PerUserPerDay = claims, 3, 2 })
	for first := 0; first < claims; first += 100 {
		reqs := make([]lua.ClaimRequest, 100)
		for i := range reqs {
			reqs[i] = want(fmt.Sprintf("user-%06d", first+i), 1, fmt.Sprintf("order-%d", first+i))
		}
		for _, outcome := range b.outcomes(reqs...) {
			require.Equal(t, models.OutcomeClaimed, outcome)
		}
	}
	size := func(key string) float64 {
		n, err := rdb.MemoryUsage(t.Context(), key, 0).Result()
		require.NoError(t, err)
		return float64(n) / claims
	}
	users, keys, stream := size(b.keys.Users), size(b.keys.Keys), size(b.keys.Stream)
	t.Logf("bytes a claim: users %.0f + keys %.0f = %.0f; its entry in the stream %.0f", users, keys, users+keys, stream)
	require.LessOrEqual(t, users+keys, float64(bytesPerClaimMax))
}
