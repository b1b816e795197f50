package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
)

// goesOnWithin is the promised time from Redis' return to the first answered
// claim, without intervention. It allows a busy machine more than the second
// in which processes report what they saw.
const goesOnWithin = 10 * time.Second

// Redis loses answered claims. Claims must go on without
// intervention, no answered unit may be sold again, and the loss
// must be counted, shown and withheld.
func TestRedisLosesDataInMidRush(t *testing.T) {
	t.Parallel()
	flushed := func(s *system) { require.NoError(s.t, s.rdb.FlushAll(s.t.Context()).Err()) }
	killed := func(s *system) {
		require.NoError(s.t, s.rdb.ConfigSet(s.t.Context(), "save", "").Err())
		s.redis.Kill()
		s.redis.Start()
	}
	for _, loss := range []struct {
		name              string
		hasSnapshot       bool // Redis returns with an earlier state of the rush
		isSynced, isEarly bool // the consumer keeps up; it never ran
		strike            func(s *system)
	}{
		{name: "flushed", isSynced: true, strike: flushed},
		{name: "flushed while the consumer is away", strike: flushed},
		{name: "flushed before MySQL had anything", isEarly: true, strike: flushed},
		{name: "back from an older snapshot", hasSnapshot: true, isSynced: true, strike: killed},
		{name: "back from an older snapshot while the consumer is away", hasSnapshot: true, strike: killed},
		{name: "back without anything", strike: killed},
	} {
		t.Run(loss.name, func(t *testing.T) {
			t.Parallel()
			users := testenv.Pick(1_500, 10_000)
			s := newSystem(t, setup{apis: 2, settings: map[string]string{"DIBS_STREAM_KEEP": "1h"}})
			if loss.isEarly {
				s.consumers[0].kill9()
			}
			c := openCampaign(t, s.apis[0].url, campaign{Total: int64(users) * 6 / 10, PerUser: 1})
			rush := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: c.ID, Users: users, Connections: 50, PerSecond: 500})
			rush.reaches(users * 2 / 10)
			if !loss.isSynced && !loss.isEarly {
				s.consumers[0].kill9()
			}
			if loss.hasSnapshot {
				require.NoError(t, s.rdb.Save(t.Context()).Err())
			}
			rush.reaches(users * 4 / 10)
			loss.strike(s)
			if !loss.isSynced {
				s.consumers[0].restart()
			}
			back := time.Now()
			tally := merged()
			if first := s.firstYes(c, "prober"); first.status == http.StatusCreated {
				book1(t, &tally, first)
			}
			went := time.Since(back)
			require.Less(t, went, goesOnWithin)
			tally = merged(tally, rush.wait())
			lost, withheld := s.requireNoneTooMany(c, tally)
			if !loss.isSynced {
				require.Positive(t, lost)
			}
			t.Logf("claims went on after %s, %d answered claims lost, %d units withheld", went.Round(time.Millisecond), lost, withheld)
		})
	}
}

// firstYes claims, each time with a new key, until a claim is
// accepted or the stock is sold out.
func (s *system) firstYes(c campaign, user string) (got reply) {
	s.t.Helper()
	for n := 0; got.status != http.StatusCreated && got.code() != "sold_out"; n++ {
		got = claimOnce(s.t, s.urls()[n%len(s.apis)], c.ID, user, 1, fmt.Sprint(user, "-", n))
		require.Less(s.t, n, 100_000, "no claim is accepted any more: %s", got.body)
	}
	return got
}

// requireNoneTooMany checks a campaign of single units after a loss, when
// more was wanted than there is. The units of rows and the withheld ones must
// equal its total. Each row must be known to a user or in doubt. It returns
// the number of answered claims without a row, and of withheld units.
func (s *system) requireNoneTooMany(c campaign, tally crowd.Tally) (lost, withheld int64) {
	t := s.t
	t.Helper()
	eventually(t, drainWithin, "MySQL does not get there", func() bool {
		state, err := s.scripts.State(t.Context(), c.ID)
		if err != nil {
			return false
		}
		var synced, claims int64
		err = s.db.QueryRowContext(t.Context(), "SELECT synced_seq, lost_claims, lost_units FROM campaigns WHERE id = ?", c.ID).
			Scan(&synced, &claims, &withheld)
		return err == nil && synced+claims == state.Seq && state.Remaining() == 0
	})
	rows := s.booksOf(c.ID)
	require.Equal(t, c.Total, rows.Live+withheld)
	answers := answersOf(tally)
	for i := range answers {
		answers[i].MayBeLost = true
	}
	var wrong report
	lost = int64(len(rows.Answers(answers, wrong.addf)))
	require.Empty(t, wrong)
	require.LessOrEqual(t, lost, withheld, "an answered unit is sold again")
	for _, url := range s.urls() {
		require.Equal(t, "sold_out", claimOnce(t, url, c.ID, "late", 1, "").code())
	}
	got := runDibs(t, s.settings, "reconcile")
	require.Equal(t, exitOK, got.code, got.stdout+got.stderr)
	return lost, withheld
}

// Redis loses everything while the consumer is behind, and no
// claim follows. The answered units must be known, shown and
// withheld until an operator gives them up.
func TestLostUnitsAreWithheldUntilSomeoneGivesThemUp(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{})
	api := s.apis[0].url
	c := openCampaign(t, api, campaign{Total: 20})
	took := func(prefix string, n int) {
		for i := range n {
			require.Equal(t, http.StatusCreated, claimUntilAnswered(t, api, c.ID, fmt.Sprint(prefix, i), 1, "").status)
		}
	}
	soldOut := func() {
		require.Equal(t, "sold_out", claimUntilAnswered(t, api, c.ID, "late", 1, "").code())
	}
	took("booked-", 5)
	s.awaitSynced(c.ID, 5)
	s.consumers[0].stop()
	took("answered-", 10)
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	s.consumers[0].restart()
	took("after-", 5)
	soldOut()
	s.awaitSynced(c.ID, 10)

	stock, err := stockOf(t.Context(), api, c.ID)
	require.NoError(t, err)
	require.Equal(t, []int64{10, 0, 10, 10, 0}, []int64{stock.Claimed, stock.Remaining, stock.LostClaims, stock.LostUnits, stock.Drift})
	var remaining int64
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT remaining FROM stock_watch WHERE campaign_id = ?", c.ID).Scan(&remaining))
	require.Zero(t, remaining)
	compared := runDibs(t, s.settings, "reconcile", "--campaign", c.ID)
	require.Equal(t, exitOK, compared.code, compared.stdout+compared.stderr)
	require.Contains(t, compared.stdout, "10 claims of 10 units are lost")
	compared = runDibs(t, s.settings, "reconcile", "--campaign", c.ID, "--repair")
	require.Equal(t, exitOK, compared.code, compared.stdout+compared.stderr)
	soldOut()

	compared = runDibs(t, s.settings, "reconcile", "--campaign", c.ID, "--repair", "--give-up-claims")
	require.Equal(t, exitOK, compared.code, compared.stdout+compared.stderr)
	require.Contains(t, compared.stdout, "given up: 10 units are for sale again")
	took("again-", 10)
	soldOut()
	compared = runDibs(t, s.settings, "reconcile")
	require.Equal(t, exitOK, compared.code, compared.stdout+compared.stderr)
}

// settled retries while the outcome is unknown or the campaign
// takes no claims, and returns the last code.
func settled(ask func() string) (code string) {
	for code == "" || code == "outcome_unknown" || code == "unavailable" {
		code = ask()
	}
	return code
}
