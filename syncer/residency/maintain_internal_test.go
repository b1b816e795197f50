package residency

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

// TestAScanOfLotsBeginsAgainBehindTheLastOne, not behind a page that is short: it may have been cut off on its way.
func TestAScanOfLotsBeginsAgainBehindTheLastOne(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a", after([]models.Campaign{{ID: "a"}}))
	require.Empty(t, after(nil))
}
