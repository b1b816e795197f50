package claiming_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/api"
	"dibs/api/claiming"
	"dibs/internal/apitest"
	"dibs/models"
)

func TestAppendClaim_IsEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := models.Claim{
			ID: rapid.String().Draw(t, "id"), CampaignID: rapid.StringMatching(`[a-z<>&"\\]{0,9}`).Draw(t, "campaign"),
			UserID: rapid.String().Draw(t, "user"), Quantity: rapid.Int64().Draw(t, "quantity"), Seq: rapid.Int64().Draw(t, "seq"),
			Status: "claimed", ClaimedAt: models.TimeFromMs(rapid.Int64Range(0, 253402300799999).Draw(t, "at")),
			PacketID: rapid.StringMatching(`[a-z]{0,3}`).Draw(t, "packet"), Currency: rapid.SampledFrom([]string{"", "EUR"}).Draw(t, "currency"),
		}
		if rapid.Bool().Draw(t, "amount") {
			amount := rapid.Int64().Draw(t, "minor")
			c.Amount = &amount
		}
		if rapid.Bool().Draw(t, "held") {
			at := models.NewTime(c.ClaimedAt.Add(15 * time.Minute))
			c.ExpiresAt = &at
		}
		want, err := json.Marshal(c)
		require.NoError(t, err)
		require.Equal(t, string(want), string(claiming.AppendClaim(nil, &c)))
	})
}

func TestOpenAPI_RequestsOfClaimsNameEveryFieldThatIsDecoded(t *testing.T) {
	t.Parallel()
	apitest.RequireFields(t, apitest.NewServer(t, apitest.NewFake(), api.Config{}), claiming.RequestFields())
}
