package event

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const plainEvent = `{"v":1,"type":"claim.accepted","id":"01a1fc6d-e406-7215-ad5f-bdaab8462f2c","campaign_id":"spring",` +
	`"user_id":"ada","quantity":2,"key":"glTDKakoUPbVOd03b0gW7g","seq":17,"epoch":1,"at":"2026-11-21T04:47:02.663Z"}`

// agrees compares scan with encoding/json: what it accepts it must read
// the same way.
func agrees(t *testing.T, payload []byte) (scanned bool) {
	t.Helper()
	var quick, slow Event
	if !scan(payload, &quick) {
		return false
	}
	require.NoError(t, json.Unmarshal(payload, &slow), "%s", payload)
	require.Equal(t, slow, quick, "%s", payload)
	return true
}

func TestThePlainFormIsScanned(t *testing.T) {
	t.Parallel()
	require.True(t, agrees(t, []byte(plainEvent)))
	require.True(t, agrees(t, []byte(`{"v":1,"packet_id":"_00000017","amount":999999999999999,"currency":"CNY"}`)))
	require.True(t, agrees(t, []byte(`{"v":1,"user_id":"~ !","quantity":0,"at":"2024-02-29T23:59:59.999Z"}`)))
}

func TestWhateverIsNotPlainIsLeftToJSON(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]string{
		"escape":           `{"user_id":"a\"b"}`,
		"beyond ASCII":     `{"user_id":"é"}`,
		"space":            `{ "v":1}`,
		"leading zero":     `{"seq":01}`,
		"too many digits":  `{"seq":1234567890123456789}`,
		"null":             `{"id":null}`,
		"other time":       `{"at":"2026-11-21T04:47:02Z"}`,
		"30 February":      `{"at":"2026-02-30T04:47:02.663Z"}`,
		"leap second":      `{"at":"2026-01-01T23:59:60.000Z"}`,
		"empty":            ``,
		"comma at the end": `{"v":1,}`,
	} {
		require.False(t, scan([]byte(payload), &Event{}), name)
	}
}

func TestSpoiledEventsAreReadAsJSONReadsThem(t *testing.T) {
	t.Parallel()
	scanned := 0
	for i := range len(plainEvent) {
		for _, c := range []string{"", `"`, "0", "9", "}", ",", "\\", "x", "T", "é"} {
			if agrees(t, []byte(plainEvent[:i]+c+plainEvent[i+1:])) {
				scanned++
			}
		}
	}
	require.Positive(t, scanned, "digits and letters may change without harm")
}

func FuzzScanEvent(f *testing.F) {
	f.Add([]byte(plainEvent))
	f.Add([]byte(strings.Replace(plainEvent, "17", "0", 1)))
	f.Add([]byte(`{"v":1,"at":"0000-01-01T00:00:00.000Z"}`))
	f.Fuzz(func(t *testing.T, payload []byte) { agrees(t, payload) })
}
