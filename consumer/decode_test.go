package consumer_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

// FuzzDecodeEvent feeds payloads of any kind to the reader of events. Whatever it accepts keeps every rule of an event
// and survives a round trip; whatever it refuses is refused by name.
func FuzzDecodeEvent(f *testing.F) {
	for _, seed := range []string{
		fmt.Sprintf(benchPayload, 1, 1, 1),
		`{"v":1,"type":"claim.accepted","id":"1","campaign_id":"c","user_id":"ü","quantity":1000000,"seq":9007199254740993,` +
			`"at":"2026-11-01T01:30:00+05:30","packet_id":"p","amount":-1,"currency":"EUR","unknown":[{}]}`,
		`{"v":1,"type":"campaign.sold_out","id":"1","campaign_id":"c","at":"9999-12-31T23:59:59.999Z"}`,
		`{"v":1,"type":"","id":"1","campaign_id":"c","at":"1970-01-01T00:00:00Z"}`,
		`{"v":1,"type":"claim.accepted","id":"1","campaign_id":"c","user_id":"u","quantity":1e3,"seq":1,"at":"2026-01-01T00:00:00Z"}`,
		`{"v":2}`, `{"v":1`, `[]`, `null`, ``, "\xff\xfe", `{"at":"0000-01-01T00:00:00Z"}`, `{"V":1,"ID":"1"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		event, err := models.DecodeEvent(payload)
		if err != nil {
			require.ErrorIs(t, err, models.ErrEvent)
			require.Zero(t, event)
			return
		}
		requireRules(t, event)
		again, err := json.Marshal(event)
		require.NoError(t, err)
		twin, err := models.DecodeEvent(again)
		require.NoError(t, err, "%s", again)
		require.Equal(t, event, twin)
	})
}

func requireRules(t *testing.T, e models.Event) {
	t.Helper()
	require.Equal(t, models.EventVersion, e.V)
	require.NotEmpty(t, e.ID)
	require.LessOrEqual(t, len(e.ID), models.CampaignIDLength)
	require.NoError(t, models.CheckCampaignID(e.CampaignID))
	if e.Type == models.EventClaimAccepted {
		require.NoError(t, models.CheckUserID(e.UserID))
		require.Positive(t, e.Seq)
		require.Positive(t, e.Quantity)
		require.LessOrEqual(t, e.Quantity, models.QuantityMax)
	}
}
