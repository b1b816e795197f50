package writer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/writer"
)

func singlesOf(mode string, first, n int64) []models.Event {
	events := syncertest.ClaimsOf("c", first, n)
	for i := range events {
		events[i].Mode = mode
		events[i].Quantity = 1
	}
	return events
}

func TestWriter_FlushesAtOnceWhatAnswersWaitFor(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 100)
		told := make(chan map[int]models.Offset, 100)
		w := syncertest.StartWriter(t, writer.Config{
			DB: db, FlushInterval: time.Minute, Applied: func(offsets map[int]models.Offset) { told <- offsets },
		})
		f := newFeed(t, db, w, 0)
		events := singlesOf(models.ModeMySQL, 1, 3)
		began := time.Now()
		for i := range events {
			require.NoError(t, f.add(events[i]))
			require.Equal(t, map[int]models.Offset{0: f.at}, <-told)
		}
		require.GreaterOrEqual(t, time.Since(began), 2*writer.AwaitedApart)
		syncertest.RequireBooks(t, db, "c", events)

		require.NoError(t, f.add(singlesOf("", 4, 1)...))
		select {
		case <-told:
			require.Fail(t, "nobody waits for this one")
		case <-time.After(20 * writer.AwaitedApart):
		}
	})
}
