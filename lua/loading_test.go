package lua_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// A paused campaign refuses with 409; one whose load MySQL has not confirmed must have that done first.
func TestACampaignWhoseLoadIsNotConfirmedIsAbsentToClaims(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	scripts, err := lua.New(testenv.SharedRedis(t).Client(), lua.Options{})
	require.NoError(t, err)
	c := &models.Campaign{
		ID: testenv.UniqueID(t, "loading"), Kind: models.KindCoupon, Status: models.StatusLoading, Total: 10, TimeZone: "UTC", Epoch: 1,
	}
	loaded, err := scripts.Load(ctx, c)
	require.NoError(t, err)
	require.True(t, loaded)
	state, err := scripts.State(ctx, c.ID)
	require.NoError(t, err)
	require.Equal(t, models.StatusLoading, state.Status)

	meta, err := scripts.MetaOf(c)
	require.NoError(t, err)
	req := []lua.ClaimRequest{{ID: uuid.New(), UserID: "ada", Quantity: 1}}
	replies, _, err := scripts.Claim(ctx, meta, req)
	require.NoError(t, err)
	require.Equal(t, models.OutcomeAbsent, replies[0].Outcome)

	c.Status, c.Version = models.StatusOpen, 1
	_, err = scripts.Adjust(ctx, c)
	require.NoError(t, err)
	replies, _, err = scripts.Claim(ctx, meta, req)
	require.NoError(t, err)
	require.Equal(t, models.OutcomeClaimed, replies[0].Outcome)
}
