package campaigns_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"dibs/internal/syncertest"
	"dibs/models"

	"github.com/stretchr/testify/require"
)

// BenchmarkUserIndex inserts rows of random users under the index of users' claims as it was, and as it is since migration 6, by
// turns on one server: go test -run - -bench UserIndex -benchtime 3x ./syncer.
func BenchmarkUserIndex(b *testing.B) {
	const rows = 200_000
	var was, is float64
	for range b.N {
		for _, old := range []bool{true, false} {
			db := syncertest.OpenServer(b)
			if old {
				require.NoError(b, db.Exec("ALTER TABLE claims DROP KEY claims_of_user, ADD KEY claims_of_user (user_id, campaign_id)").Error)
			}
			syncertest.AddCampaign(b, db, "hot", 1_000_000_000)
			events := syncertest.ClaimsOf("hot", 1, rows)
			for i := range events {
				events[i].UserID = randomUser(&events[i])
			}
			rate := float64(rows) / syncertest.RawInsert(b, db, events).Seconds()
			if old {
				was += rate
			} else {
				is += rate
			}
		}
	}
	b.ReportMetric(was/float64(b.N), "was/s")
	b.ReportMetric(is/float64(b.N), "is/s")
	b.ReportMetric(is/was, "of-was")
}

func randomUser(e *models.Event) string {
	sum := sha256.Sum256([]byte(e.ID))
	return hex.EncodeToString(sum[:12])
}
