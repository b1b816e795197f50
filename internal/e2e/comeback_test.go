package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
	"dibs/models"
)

// seenWithin is the promise: so long after a unit came back no API process may say that it is sold out.
const seenWithin = 100 * time.Millisecond

// releaseOnce gives a claim back.
func releaseOnce(t testing.TB, url, id string) reply {
	t.Helper()
	return call(t, http.MethodPost, url+"/v1/claims/"+id+"/release", "", map[string]string{})
}

// TestAReleasedUnitIsClaimableInEveryProcess: each process knows by heart that the campaign is sold out when a unit comes back through
// one of them. That one gives it out at once, the other to whoever asks later than the promise allows.
func TestAReleasedUnitIsClaimableInEveryProcess(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{apis: 2})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 1})
	holder := claimOnce(t, s.apis[0].url, c.ID, "first", 1, "").claim(t)
	var longest time.Duration
	for round := range testenv.Pick(20, 300) {
		here, there := s.apis[round%2].url, s.apis[(round+1)%2].url
		require.Equal(t, "sold_out", claimOnce(t, here, c.ID, "late", 1, "").code())
		if round%4 < 2 {
			require.Equal(t, http.StatusOK, releaseOnce(t, here, holder.ID).status)
			got := claimOnce(t, here, c.ID, "next", 1, "")
			require.Equal(t, http.StatusCreated, got.status, "the process that took it back: %s", got.body)
			holder = got.claim(t)
			continue
		}
		taken := askUntilTaken(t, there, c.ID)
		require.Equal(t, http.StatusOK, releaseOnce(t, here, holder.ID).status)
		back := time.Now()
		got := <-taken
		require.Less(t, got.refused.Sub(back), seenWithin, "the other process was asked after the answer, and refused")
		longest, holder = max(longest, got.refused.Sub(back)), got.claim(t)
	}
	t.Logf("the other process refused no one who asked later than %s after a unit came back", longest)
}

// lateYes is a claim, and when the last one was asked for that was refused.
type lateYes struct {
	reply

	refused time.Time
}

// askUntilTaken asks again and again, so that the process always knows again that nothing is left, until a claim is made.
func askUntilTaken(t testing.TB, url, campaignID string) <-chan lateYes {
	t.Helper()
	refused, taken := make(chan struct{}, 1), make(chan lateYes, 1)
	go func() {
		var last lateYes
		for deadline := time.Now().Add(upTimeout); time.Now().Before(deadline); {
			asked := time.Now()
			if last.reply = claimOnce(t, url, campaignID, "next", 1, ""); last.status == http.StatusCreated { //nolint:testifylint // asserts no more than that there is a request
				break
			}
			last.refused = asked
			select {
			case refused <- struct{}{}:
			default:
			}
		}
		taken <- last
	}()
	<-refused
	return taken
}

// TestEveryUnitThatComesBackIsClaimedAgain: all units are taken, each is released once, in any order, while a crowd asks two API
// processes for what comes back. In the end there are as many live claims as units.
func TestEveryUnitThatComesBackIsClaimedAgain(t *testing.T) {
	t.Parallel()
	units := testenv.Pick(300, 1_000)
	s := newSystem(t, wishes{apis: 2})
	c := openCampaign(t, s.apis[0].url, campaign{Total: int64(units), PerUser: 1})
	first := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: c.ID, Users: units, Connections: 20}).wait()
	require.Equal(t, units, first.Accepted)
	var again, refused atomic.Int64
	var g errgroup.Group
	for claimer := range 8 {
		g.Go(func() error {
			for n := 0; again.Load() < int64(units); n++ {
				got := claimOnce(t, s.apis[(claimer+n)%2].url, c.ID, fmt.Sprintf("again-%d-%d", claimer, n), 1, "")
				switch {
				case got.status == http.StatusCreated:
					again.Add(1)
				case got.code() == "sold_out":
					refused.Add(1)
					<-time.After(pollEvery)
				default:
					return fmt.Errorf("claim: %d %s %w", got.status, got.body, got.err)
				}
			}
			return nil
		})
	}
	s.releaseAll(first.Claims)
	require.NoError(t, g.Wait())
	for _, url := range s.urls() {
		require.Equal(t, "sold_out", claimOnce(t, url, c.ID, "too late", 1, "").code())
	}
	t.Logf("%d claims were refused while none was there", refused.Load())
	require.EqualValues(t, units, again.Load())
	s.requireBack(c, c.Total, c.Total, nil)
	ends, most := s.finance.endsOf(c.ID)
	require.EqualValues(t, units, most, "live at once, by the order of events")
	for id := range first.Claims {
		require.Len(t, ends[id], 1)
		require.Equal(t, models.EventClaimReleased, ends[id][0].Type)
	}
	stock, err := stockOf(t.Context(), s.apis[1].url, c.ID)
	require.NoError(t, err)
	require.Equal(t, []int64{c.Total, 0, c.Total}, []int64{stock.Claimed, stock.Remaining, stock.Synced})
}

// releaseAll gives back each of these claims once, in any order, through any process.
func (s *system) releaseAll(claims map[string]models.Claim) {
	s.t.Helper()
	ids := make([]string, 0, len(claims))
	for id := range claims {
		ids = append(ids, id)
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	var g errgroup.Group
	g.SetLimit(4)
	for i, id := range ids {
		g.Go(func() error {
			if got := releaseOnce(s.t, s.urls()[i%2], id); got.status != http.StatusOK {
				return fmt.Errorf("release: %d %s %w", got.status, got.body, got.err)
			}
			return nil
		})
	}
	require.NoError(s.t, g.Wait())
}
