package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/internal/testkit/testenv"
)

func lookedUp(t testing.TB, url, id string) reply {
	t.Helper()
	return call(t, http.MethodGet, url+"/v1/claims/"+id, "", nil)
}

// Claims are made through one API process and looked up through
// another, on a cluster with four streams, while consumers die
// and return. No look-up may deny a claim.
func TestEveryClaimIsFoundTheMomentItIsAnswered(t *testing.T) {
	t.Parallel()
	claims := testenv.Pick(1_000, 10_000)
	s := newSystem(t, setup{masters: 3, partitions: 4, apis: 2, consumers: 2})
	var campaigns []campaign
	for i := range 3 {
		campaigns = append(campaigns, openCampaign(t, s.apis[0].url, campaign{ID: fmt.Sprint("sale-", i), Total: int64(claims)}))
	}
	ids := make([]string, claims)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range claims {
		if i == claims/3 {
			s.consumers[0].kill9() // the other takes over its partitions
		}
		if i == claims*2/3 {
			s.consumers[0].restart()
		}
		g.Go(func() error {
			user := fmt.Sprint("user ", i)
			got := claimOnce(t, s.apis[i%2].url, campaigns[i%3].ID, user, 1, "")
			if got.status != http.StatusCreated {
				return fmt.Errorf("claim: %d %s %w", got.status, got.body, got.err)
			}
			ids[i] = got.claim(t).ID
			again := lookedUp(t, s.apis[(i+1)%2].url, ids[i])
			for until := time.Now().Add(upTimeout); again.status == http.StatusServiceUnavailable && time.Now().Before(until); {
				// each waits a second for the row
				again = lookedUp(t, s.apis[(i+1)%2].url, ids[i])
			}
			if again.status != http.StatusOK || again.body != got.body {
				return fmt.Errorf("look-up of %s: %d %s %w", got.body, again.status, again.body, again.err)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	unknown := lookedUp(t, s.apis[0].url, uuid.NewString())
	require.Equal(t, "claim_not_found", unknown.code(), unknown.body)
}

// MySQL is killed, then stalled, with unsynced claims answered
// before and after.
func TestLookUpsWithoutMySQL(t *testing.T) {
	t.Parallel()
	for _, away := range []struct {
		name        string
		leave, back func(s *testenv.MySQLServer)
	}{
		{"killed", (*testenv.MySQLServer).Kill, (*testenv.MySQLServer).Start},
		{"hanging", (*testenv.MySQLServer).Pause, (*testenv.MySQLServer).Resume},
	} {
		t.Run(away.name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, setup{ownSQL: true, apis: 2})
			c := openCampaign(t, s.apis[0].url, campaign{Total: 100})
			synced := claimOnce(t, s.apis[0].url, c.ID, "u", 1, "").claim(t)
			s.awaitSynced(c.ID, 1)
			away.leave(s.sql)
			for range 3 {
				got := claimOnce(t, s.apis[0].url, c.ID, "u", 1, "")
				require.Equal(t, http.StatusCreated, got.status, got.body)
				requireRetryable(t, lookedUp(t, s.apis[1].url, got.claim(t).ID), "unavailable")
			}
			for _, id := range []string{synced.ID, uuid.NewString()} {
				requireRetryable(t, lookedUp(t, s.apis[1].url, id), "unavailable")
			}
			requireRetryable(t, call(t, http.MethodGet, s.apis[1].url+"/v1/users/u/claims", "", nil), "unavailable")
			away.back(s.sql)
			s.awaitSynced(c.ID, 4)
			require.Equal(t, http.StatusOK, lookedUp(t, s.apis[1].url, synced.ID).status)
			unknown := lookedUp(t, s.apis[1].url, uuid.NewString())
			require.Equal(t, "claim_not_found", unknown.code(), unknown.body)
			require.Equal(t, 4, strings.Count(call(t, http.MethodGet, s.apis[1].url+"/v1/users/u/claims", "", nil).body, `"campaign_id"`))
		})
	}
}

// awaitSynced waits until MySQL has a campaign's claims.
func (s *system) awaitSynced(campaignID string, claims int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var n int
		ctx, cancel := context.WithTimeout(context.Background(), upTimeout)
		defer cancel()
		err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM claims WHERE campaign_id = ?", campaignID).Scan(&n)
		return err == nil && n == claims
	}, upTimeout, pollEvery)
}
