package campaigns

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

// Earlier versions wrote this digest into
// campaigns.created_digest. A renamed field must keep its name
// there, or a repeated creation counts as another campaign.
func TestDigestOf_IsTheOneThatIsStored(t *testing.T) {
	t.Parallel()
	starts := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	digest, err := digestOf(&models.Campaign{
		ID: "summer", Kind: models.KindCoupon, Name: "Summer", Status: models.StatusOpen, Total: 100, PerUser: 2, PerUserPerDay: 1,
		TimeZone: "Europe/Berlin", StartsAt: &starts, LowStockAt: 10, HoldForMs: 900_000,
	})
	require.NoError(t, err)
	require.Equal(t, "dbc4e4a025d86d44ec5cd361bbebb1ae47c35a2634efc6fffacfb7e3f662319b", digest)
}
