package hourlimit_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/resolve"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	claimed   = models.OutcomeClaimed
	replayed  = models.OutcomeReplayed
	hourLimit = models.OutcomeUserHourLimit
)

// story is a campaign with a limit of two units a user and hour, on real servers, by a clock of its own.
type story struct {
	*syncertest.Stack

	id string
	ms atomic.Int64
}

func begin(t *testing.T) *story {
	t.Helper()
	s := &story{}
	s.ms.Store(time.Now().Truncate(24 * time.Hour).Add(12*time.Hour + 30*time.Minute).UnixMilli())
	server, db := testenv.Redis(t), syncertest.OpenServer(t)
	scripts, err := lua.New(server.Client(), lua.Options{ServerClock: s.ms.Load, Clock: func() time.Time { return time.UnixMilli(s.ms.Load()) }})
	require.NoError(t, err)
	s.Stack = &syncertest.Stack{T: t, Server: server, Redis: server.Client(), DB: db, Scripts: scripts}
	s.Writer = syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
	s.Group()
	s.id = s.Create(100, func(c *models.Campaign) { c.PerUser, c.PerUserPerDay, c.PerUserPerHour = 9, 8, 2 })
	return s
}

func (s *story) pass(d time.Duration) { s.ms.Add(d.Milliseconds()) }

func (s *story) outcomes(reqs ...lua.ClaimRequest) []models.Outcome {
	s.T.Helper()
	return syncertest.OutcomesOf(s.Claim(s.id, reqs...))
}

// u asks for a unit for the user u.
func u() lua.ClaimRequest { return syncertest.Ask("u", "") }

func (s *story) release(claimID string) {
	s.T.Helper()
	relay := resolve.NewRelay(s.DB, s.Scripts, nil)
	_, err := resolve.NewResolver(s.DB, relay, syncertest.Quiet()).Release(s.T.Context(), claimID, "")
	require.NoError(s.T, err)
	require.NoError(s.T, relay.ForgetTold(s.T.Context()))
	require.Zero(s.T, syncertest.Unapplied(s.T, s.DB))
}

func (s *story) records() map[string]string {
	s.T.Helper()
	records, err := s.Redis.HGetAll(s.T.Context(), s.Keys(s.id).Users).Result()
	require.NoError(s.T, err)
	return records
}

func (s *story) requireAgreed() {
	s.T.Helper()
	s.Sync()
	require.Empty(s.T, s.Compare(s.id).Differences)
}

func TestClaimsUnderTheLimit(t *testing.T) {
	t.Parallel()
	s := begin(t)
	keyed := syncertest.Ask("u", "key")
	require.Equal(t, []models.Outcome{claimed, claimed, hourLimit, replayed, claimed},
		s.outcomes(keyed, u(), u(), keyed, syncertest.Ask("v", "")))
	require.Equal(t, []models.Outcome{hourLimit, replayed}, s.outcomes(u(), keyed))
	s.requireAgreed()

	s.pass(time.Hour)
	earlier := s.ms.Load()
	require.Equal(t, []models.Outcome{claimed, claimed, hourLimit}, s.outcomes(u(), u(), u()), "another hour")
	s.ms.Store(earlier - time.Hour.Milliseconds())
	require.Equal(t, []models.Outcome{hourLimit}, s.outcomes(u()), "hours never go back")
	s.requireAgreed()
}

func TestALimitThatIsChanged(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.outcomes(u(), u())
	three := int64(3)
	c, err := syncertest.NewCampaigns(t, s.DB, s.Scripts).Change(t.Context(), s.id, models.Change{PerUserPerHour: &three})
	require.NoError(t, err)
	require.Equal(t, three, c.PerUserPerHour)
	require.Equal(t, []models.Outcome{claimed, hourLimit}, s.outcomes(u(), u()))

	stored := s.Campaign(s.id)
	again := stored.Definition()
	_, created, err := syncertest.NewCampaigns(t, s.DB, s.Scripts).Create(t.Context(), again)
	require.NoError(t, err, "the same content")
	require.False(t, created)
	again.PerUserPerHour = 5
	_, _, err = syncertest.NewCampaigns(t, s.DB, s.Scripts).Create(t.Context(), again)
	require.ErrorIs(t, err, models.ErrExists, "other content")
}

func TestReleasesGiveTheLimitBack(t *testing.T) {
	t.Parallel()
	s := begin(t)
	ids := s.Take(s.id, u(), u())
	s.release(ids[0])
	require.Equal(t, []models.Outcome{claimed, hourLimit}, s.outcomes(u(), u()))
	s.requireAgreed()
	s.pass(time.Hour)
	require.Equal(t, []models.Outcome{claimed, claimed}, s.outcomes(u(), u()))
	s.release(ids[1])
	require.Equal(t, []models.Outcome{hourLimit}, s.outcomes(u()), "it was of the hour before")
	s.requireAgreed()
}

func TestTheLimitOutlivesEvictionLossAndRebuild(t *testing.T) {
	t.Parallel()
	s := begin(t)
	ids := s.Take(s.id, u(), syncertest.Ask("v", ""), u())
	s.release(ids[2])
	s.Sync()
	before := s.records()
	require.Len(t, before, 2)

	s.pass(time.Second)
	require.Equal(t, 1, s.Evict(time.Millisecond))
	require.Equal(t, models.ResidencyEvicted, s.Residency(s.id))
	require.NoError(t, s.Hydrate(s.id))
	require.Equal(t, before, s.records(), "evicted and loaded")

	s.Lose(s.id, syncertest.WholeCampaign)
	require.NoError(t, s.Hydrate(s.id))
	require.Equal(t, before, s.records(), "lost and rebuilt from MySQL")
	s.requireAgreed()
	require.Equal(t, []models.Outcome{claimed, hourLimit}, s.outcomes(u(), u()))
}

func TestReconcileAndRepairKnowTheLimit(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Take(s.id, u(), syncertest.Ask("v", ""))
	before := s.records()
	hour := s.ms.Load() / time.Hour.Milliseconds()
	whole := fmt.Sprintf(";%d:1", hour)
	require.Contains(t, before["u"], whole)
	for _, wrong := range []string{fmt.Sprintf(";%d:2", hour), fmt.Sprintf(";%d:0", hour), fmt.Sprintf(";%d:1", hour+1)} {
		spoilt := before["u"][:len(before["u"])-len(whole)] + wrong
		require.NoError(t, s.Redis.HSet(t.Context(), s.Keys(s.id).Users, "u", spoilt).Err())
		found := s.Compare(s.id)
		require.Len(t, found.Differences, 1, spoilt)
		require.Contains(t, found.Differences[0], "of hour", spoilt)
		done := s.Repair(s.id, reconcile.RepairHow{})
		require.Empty(t, done.Left.Differences, spoilt)
		require.Equal(t, before, s.records(), "repaired by the rows")
	}
	require.Equal(t, []models.Outcome{claimed, hourLimit}, s.outcomes(u(), u()))
}

// A campaign that Redis holds from before the limit has no such field: it is rebuilt, and what users took in this hour counts.
func TestACampaignOfBeforeTheLimitIsRebuilt(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Take(s.id, u())
	before := s.records()
	keys := s.Keys(s.id)
	require.NoError(t, s.Redis.HDel(t.Context(), keys.State, "per_user_per_hour").Err())
	older := before["u"][:strings.LastIndex(before["u"], ";")]
	require.NoError(t, s.Redis.HSet(t.Context(), keys.Users, "u", older).Err())
	require.Equal(t, []models.Outcome{models.OutcomeDamaged}, s.outcomes(u()))
	require.NoError(t, s.Hydrate(s.id))
	require.Equal(t, before, s.records())
	require.Equal(t, []models.Outcome{claimed, hourLimit}, s.outcomes(u(), u()))
	s.requireAgreed()
}
