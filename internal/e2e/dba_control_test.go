package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
)

// TestDBASeesBooksThatAreMovedWrongly is the control of all tests in which a DBA looks on: whoever moves remaining by a unit
// that no one claimed, put in or gave back is seen, in either direction.
func TestDBASeesBooksThatAreMovedWrongly(t *testing.T) {
	t.Parallel()
	p := newInProcess(t, swaps{})
	p.startConsumer()
	none := func() int64 { return 0 }
	for _, row := range []struct{ name, statement, words string }{
		{"sound", "", ""},
		{"too low", "UPDATE lots SET claimed = claimed + 1 WHERE id = ?", "before Redis said"},
		{"too high", "UPDATE lots SET redis_total = total + 1 WHERE id = ?", "rose without a restock"},
	} {
		c := openCampaign(t, p.urls[0], campaign{Total: 1_000})
		d := watchBooks(p.servers, []string{c.ID}, none, true)
		tally := p.send(c, 50)
		require.Empty(t, p.books(c, tally).violations(t.Context()), row.name)
		if row.statement != "" {
			_, err := p.db.ExecContext(t.Context(), row.statement, c.ID)
			require.NoError(t, err)
			time.Sleep(100 * time.Millisecond) // some looks
		}
		found := d.stop()
		if row.words == "" {
			require.Empty(t, found)
			require.Positive(t, d.compared)
			continue
		}
		requireViolation(t, found, row.words)
	}
	_, err := p.db.ExecContext(t.Context(), "UPDATE lots SET claimed = -1")
	require.Error(t, err, "the database itself refuses less than nothing")
}

// TestDBAWatchesARestockInMidRush: remaining rises by restocks and by nothing else.
func TestDBAWatchesARestockInMidRush(t *testing.T) {
	t.Parallel()
	p := newInProcess(t, swaps{})
	p.startConsumer()
	c := openCampaign(t, p.urls[0], campaign{Total: 100})
	none := func() int64 { return 0 }
	d := watchBooks(p.servers, []string{c.ID}, none, true)
	rush := startRush(t, crowd.Plan{BaseURLs: p.urls, CampaignID: c.ID, Users: 1_500, Connections: 20})
	for more := range 5 {
		rush.reaches(200 * (more + 1))
		c.Total += 100
		got := call(t, "PATCH", p.urls[0]+"/v1/campaigns/"+c.ID, "", map[string]int64{"total": c.Total})
		require.Equal(t, 200, got.status, got.body)
	}
	tally := rush.wait()
	require.Empty(t, p.books(c, tally).violations(t.Context()))
	require.Empty(t, d.stop())
	require.Positive(t, d.compared)
}
