package writer_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/writer"
)

// A change that is committed while a flush applies an earlier one stays
// marked as unpublished. Else its packets would never be sent.
func TestWriter_AChangeThatIsCommittedMeanwhileIsNotTold(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	syncertest.AddCampaign(t, db, "c", 10)
	changes := 0
	w := startTuned(t, writer.Config{DB: db}, writer.Tuning{Step: func(name string) {
		if name == "claims.dropped" && changes == 0 {
			changes++
			require.NoError(t, db.Exec("UPDATE definitions SET version = version + 1 WHERE campaign_id = 'c'").Error)
			require.NoError(t, db.Exec("UPDATE lots SET untold = 1, redis_total = 12 WHERE id = 'c'").Error)
		}
	}})
	f := newFeed(t, db, w, 0)
	told := func(version int64) (untold, redisTotal int64) {
		t.Helper()
		f.send(models.Event{V: 1, Type: models.EventCampaignChanged, ID: uuid.NewString(), CampaignID: "c", Version: version, At: models.NewTime(time.Now())})
		require.NoError(t, db.Raw("SELECT COALESCE(untold, 0), redis_total FROM lots WHERE id = 'c'").Row().Scan(&untold, &redisTotal))
		return untold, redisTotal
	}
	untold, redisTotal := told(1)
	require.Equal(t, []int64{1, 12}, []int64{untold, redisTotal})
	untold, redisTotal = told(2)
	require.Equal(t, []int64{0, 0}, []int64{untold, redisTotal})
}
