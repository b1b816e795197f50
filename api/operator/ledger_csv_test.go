package operator

import (
	"bytes"
	"encoding/csv"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/models"
	"dibs/models/event"
)

// csvOf is the ledger of events in one of its two forms.
func csvOf(t *testing.T, forSheet bool, events ...event.Event) (text string, lines [][]string) {
	t.Helper()
	all := func() iter.Seq2[*event.Event, error] {
		return func(yield func(*event.Event, error) bool) {
			for i := range events {
				if !yield(&events[i], nil) {
					return
				}
			}
		}
	}
	var out bytes.Buffer
	require.NoError(t, writeLedger(&out, all(), forSheet))
	lines, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(out.String(), byteOrderMark))).ReadAll()
	require.NoError(t, err)
	return out.String(), lines
}

func TestLedgerCSV_TextsOfUsersAreNoFormulas(t *testing.T) {
	t.Parallel()
	at := models.NewTime(time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC))
	for text, safe := range map[string]string{
		`=HYPERLINK("http://x","y")`: `'=HYPERLINK("http://x","y")`, "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "＝1": "'＝1",
		"a;=1": "a;'=1", "a\t+1": "a\t'+1", "a\n=1": "a\n'=1", "1-2 = 3": "1-2 = 3", "ada": "ada", "": "",
	} {
		e := event.Event{
			Type: event.ClaimReleased, ID: "e1", At: at, ClaimID: text, UserID: text, Quantity: 1, PacketID: text, OrderID: text, Reason: text,
			Seqs: [][2]int64{{1, 3}},
		}
		raw, lines := csvOf(t, false, e)
		require.False(t, strings.HasPrefix(raw, byteOrderMark))
		texts := []int{3, 4, 9, 12, 13} // claim_id, user_id, packet_id, order_id, reason
		for _, column := range texts {
			require.Equal(t, text, lines[1][column], "as it is, for programs")
		}
		require.Equal(t, "1-3", lines[1][15])
		raw, lines = csvOf(t, true, e)
		require.True(t, strings.HasPrefix(raw, byteOrderMark), "or the spreadsheet takes UTF-8 for something else")
		for _, column := range texts {
			require.Equal(t, safe, lines[1][column])
		}
		require.Equal(t, "1..3", lines[1][15], "no date")
	}
}

func TestLedgerCSV_SaysUntilWhenAHoldIsExtended(t *testing.T) {
	t.Parallel()
	until := models.NewTime(time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC))
	_, lines := csvOf(t, false, event.Event{Type: event.ClaimExtended, ExpiresAt: &until}, event.Event{Type: event.ClaimRedeemed})
	column := slices.Index(lines[0], "expires_at")
	require.Positive(t, column, lines[0])
	require.Equal(t, []string{"2027-01-31T18:00:00.000Z", ""}, []string{lines[1][column], lines[2][column]})
}

func TestWantsCSV(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "Text/CSV; charset=utf-8": true, "text/csv;q=0": false, "*/*": false, "text/csvx": false,
		"application/json, text/csv;q=0.5": false, "application/json;q=0.4, text/csv;Q=0.5": true, "text/csv;q=x": false,
	} {
		require.Equal(t, want, wantsCSV(http.Header{"Accept": {accept}}), accept)
	}
}
