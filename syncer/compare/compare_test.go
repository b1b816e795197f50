package compare_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/compare"
	"dibs/syncer/lots"
	"dibs/syncer/resolve"
)

// Controls: each difference is found, and a repair corrects it without
// giving up accepted claims.
func TestCompare_FindsWhatDiffersAndARepairLoadsIt(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	for name, harm := range map[string]func(id string){
		"a counter":         func(id string) { h.Exec("UPDATE lots SET claimed = claimed + 1 WHERE id = ?", id) },
		"the seqs' counter": func(id string) { h.Exec("UPDATE lots SET synced_seq = 3 WHERE id = ?", id) },
		"units in redis":    func(id string) { set(h, id, "taken", 2) },
		"sold in redis":     func(id string) { set(h, id, "sold", 9) },
		"total in redis":    func(id string) { set(h, id, "total", 11) },
		"a record": func(id string) {
			keys := h.Keys(id).Keys
			field := h.Redis.HKeys(t.Context(), keys).Val()[0]
			require.NoError(t, h.Redis.HDel(t.Context(), keys, field).Err())
		},
		"all users": func(id string) {
			h.Lose(id, func(k lua.CampaignKeys) []string { return []string{k.Users} })
		},
	} {
		id := h.Create(10, nil)
		h.Claim(id, syncertest.Asks("u", 4)...)
		h.Sync()
		require.Empty(t, h.Compare(id).Differences, name)
		harm(id)
		require.NotEmpty(t, h.Compare(id).Differences, name)
		require.NotEmpty(t, h.Repair(id, false).Steps, name)
		h.Sync()
		require.Empty(t, h.Compare(id).Differences, name)
		require.EqualValues(t, 4, h.Campaign(id).Claimed, name)
		require.Zero(t, h.Campaign(id).LostUnits, name)
	}
}

// Lost units are no drift. They are not for sale until an operator
// gives them up. Then the stream gets their claims.
func TestRepair_GivesUpWhatIsLostWhenTold(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	before := syncertest.DumpRedis(t, h.Redis)
	_, view := h.ClaimAfter(id, lua.Position{}, syncertest.Asks("u", 3)...)
	before.Restore(t, h.Redis)
	h.Sync()
	_, err := h.Loader().Recover(t.Context(), id, view.Position)
	require.NoError(t, err)
	replies, _ := h.ClaimAfter(id, view.Position, syncertest.Ask("v", ""))
	require.Equal(t, models.OutcomeRolledBack, replies[0].Outcome)
	_, err = h.Loader().Recover(t.Context(), id, view.Position)
	require.NoError(t, err)
	h.Sync()
	require.Len(t, h.Claim(id, syncertest.Asks("w", 7)...), 7)
	require.Equal(t, models.OutcomeSoldOut, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome)
	h.Sync()
	found := h.Compare(id)
	require.Empty(t, found.Differences)
	require.Equal(t, []int64{3, 3, 7, 0}, []int64{found.MySQL.LostClaims, found.MySQL.LostUnits, found.MySQL.Claimed, found.MySQL.Remaining})
	require.Empty(t, h.Repair(id, false).Steps)
	older := syncertest.DumpOf(t, h.DB)

	done := h.Repair(id, true)
	require.NotEmpty(t, done.Steps)
	h.Sync()
	require.EqualValues(t, 3, h.Campaign(id).Remaining)
	for range 3 {
		require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Asks("y", 2)[1])[0].Outcome)
	}
	syncertest.ApplyOutbox(t, h.DB, resolve.NewRelay(h.DB, h.Scripts, nil))
	h.Sync()
	var payload string
	require.NoError(t, h.DB.Raw("SELECT payload FROM ledger_events WHERE type = ?", event.ClaimsGivenUp).Scan(&payload).Error)
	require.Contains(t, payload, `"quantity":3`)
	require.Contains(t, payload, `"seqs":[[1,3]]`)
	h.Sync()
	require.Empty(t, h.Compare(id).Differences)

	require.NoError(t, older.Restore(h.DB), "a MySQL that is restored learns of it from the stream")
	h.Sync()
	require.Zero(t, h.Campaign(id).LostUnits)
	require.EqualValues(t, 10, h.Campaign(id).Claimed)
	require.Empty(t, h.Compare(id).Differences)
}

// A claim that is on its way to MySQL is not named as given up:
// finance would take back its credit.
func TestRepair_NamesNoClaimThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	before := syncertest.DumpRedis(t, h.Redis)
	_, seen := h.ClaimAfter(id, lua.Position{}, syncertest.Asks("u", 3)...)
	before.Restore(t, h.Redis)
	require.NoError(t, h.Loader().Report(t.Context(), map[string]lua.Position{id: seen.Position}))
	h.Reload(id)
	h.Take(id, syncertest.Asks("v", 2)...)
	var claiming errgroup.Group
	once := false
	err := h.DB.Callback().Row().After("gorm:row").Register("claims", func(tx *gorm.DB) {
		if once || !strings.HasPrefix(tx.Statement.SQL.String(), "SELECT lost_claims, lost_units") {
			return
		}
		once = true
		_, now := h.ClaimAfter(id, lua.Position{}, syncertest.Ask("w", ""))
		require.NoError(t, h.Loader().Report(t.Context(), map[string]lua.Position{id: now.Position}))
		claiming.Go(func() error {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // a slow flush
			h.Sync()
			return nil
		})
	})
	require.NoError(t, err)
	_, err = h.Reconciler().Repair(t.Context(), id, true)
	require.NoError(t, err)
	require.True(t, once)
	require.NoError(t, claiming.Wait())
	var payload string
	require.NoError(t, h.DB.Raw("SELECT payload FROM outbox").Scan(&payload).Error)
	require.Contains(t, payload, `"seqs":[[1,3]]`)
}

// A loss that no claim has revealed is found and given up all the same.
func TestRepair_GivesUpWhatALotThatIsAwayLost(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	h.Evict(0)
	h.Sync()
	require.NoError(t, h.Loader().Report(t.Context(), map[string]lua.Position{id: {Epoch: 1, Seq: 3, Units: 4}}))
	require.Len(t, h.Compare(id).Differences, 1)
	other := h.Create(10, nil)
	h.Claim(other, syncertest.Ask("u", ""))
	_, err := h.Reconciler().Repair(t.Context(), id, true)
	require.ErrorIs(t, err, lots.ErrAway, "claims on their way may explain it")
	h.Sync()
	done := h.Repair(id, true)
	require.Len(t, done.Steps, 3, "loaded, given up, loaded")
	h.Sync()
	require.Empty(t, h.Compare(id).Differences)
	require.EqualValues(t, 10, h.Campaign(id).Remaining)
	require.Len(t, h.Claim(id, syncertest.Asks("u", 10)...), 10)
}

func TestRepair_TriesParkedClaimsAgain(t *testing.T) {
	t.Parallel()
	for _, givesUp := range []bool{false, true} {
		h := syncertest.NewStack(t)
		id := h.Refusing()
		require.NotEmpty(t, h.Compare(id).Differences)
		require.NotEmpty(t, h.Repair(id, false).Left.Differences, "it is refused still")
		h.Sync()
		if givesUp {
			older := syncertest.DumpOf(t, h.DB)
			done := h.Repair(id, true)
			require.Len(t, done.GivenUp, 1)
			h.Sync()
			require.EqualValues(t, 1, h.Campaign(id).Remaining)
			syncertest.ApplyOutbox(t, h.DB, resolve.NewRelay(h.DB, h.Scripts, nil))
			h.Sync()
			require.NoError(t, older.Restore(h.DB))
			h.Sync()
			require.EqualValues(t, 1, h.Campaign(id).Remaining)
		} else {
			h.Accept()
			h.Repair(id, false)
			h.Sync()
			require.EqualValues(t, 10, h.Campaign(id).Claimed)
		}
		require.Empty(t, h.Compare(id).Differences)
		require.Zero(t, h.ParkedRows(id, "discarded_at IS NULL"))
	}
}

// Two operators, or one and a repair, decide about a parked claim at once.
func TestDiscardParked_AClaimIsGivenUpOnceAndNotOnceItHasARow(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(h *syncertest.Stack, id, parked string){
		"discarded twice": func(h *syncertest.Stack, _, parked string) {
			_, err := h.Reconciler().DiscardParked(h.T.Context(), parked)
			require.NoError(h.T, err)
		},
		"given up by a repair": func(h *syncertest.Stack, id, _ string) { h.Repair(id, true) },
		"written by a retry": func(h *syncertest.Stack, id, _ string) {
			_, err := h.Reconciler().RetryParked(h.T.Context(), id)
			require.NoError(h.T, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := syncertest.NewStack(t)
			id := h.Refusing()
			isWritten := strings.HasPrefix(name, "written")
			if isWritten {
				h.Accept()
			}
			once := false
			require.NoError(t, h.DB.Callback().Row().After("gorm:row").Register("other", func(tx *gorm.DB) {
				if once || !strings.HasPrefix(tx.Statement.SQL.String(), "SELECT "+stored.ClaimIdentity+" FROM claims WHERE id IN") {
					return
				}
				once = true
				other(h, id, syncertest.ParkedIDs(t, h.DB)[0])
				h.Sync()
			}))
			_, err := h.Reconciler().DiscardParked(t.Context(), syncertest.ParkedIDs(t, h.DB)[0])
			require.ErrorIs(t, err, compare.ErrNoParked)
			require.True(t, once)
			h.Sync()
			var events int
			require.NoError(t, h.DB.Raw("SELECT COUNT(*) FROM outbox WHERE payload LIKE '%claims.given_up%'").Scan(&events).Error)
			given := 1
			if isWritten {
				given = 0
			}
			require.Equal(t, given, events)
			require.EqualValues(t, given, h.Campaign(id).GivenUpClaims)
			require.EqualValues(t, 10-given, h.Campaign(id).Claimed)
			require.Empty(t, h.Compare(id).Differences)
		})
	}
}

func TestRetryParked_AClaimThatIsGivenUpBetweenGetsNoRow(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Refusing()
	h.Accept()
	once := false
	require.NoError(t, h.DB.Callback().Row().After("gorm:row").Register("other", func(tx *gorm.DB) {
		if once || !strings.HasPrefix(tx.Statement.SQL.String(), "SELECT "+stored.ClaimIdentity+" FROM claims WHERE id IN") {
			return
		}
		once = true
		_, err := h.Reconciler().DiscardParked(t.Context(), syncertest.ParkedIDs(t, h.DB)[0])
		require.NoError(t, err)
		h.Sync()
	}))
	steps, err := h.Reconciler().RetryParked(t.Context(), id)
	require.NoError(t, err)
	require.True(t, once)
	require.Empty(t, steps)
	h.Sync()
	require.EqualValues(t, 1, h.Campaign(id).GivenUpClaims)
	require.EqualValues(t, 9, h.Campaign(id).Claimed)
	require.Empty(t, h.Compare(id).Differences)
}

// Redis lost a claim, and sold its unit again before that was noticed.
// Its seq and its key are those of the claim that MySQL has: both count.
func TestCompare_CountsClaimsOfOneSeqAndOneKey(t *testing.T) {
	t.Parallel()
	for name, refuses := range map[string]bool{"both have rows": false, "one is parked": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := syncertest.NewStack(t)
			id := h.Create(3, nil)
			if refuses {
				h.Exec("ALTER TABLE claims ADD CONSTRAINT not_u3 CHECK (user_id <> 'u-3')")
			}
			before := syncertest.DumpRedis(t, h.Redis)
			h.Take(id, syncertest.Ask("u-3", "key"))
			if refuses {
				h.Accept()
			}
			before.Restore(t, h.Redis)
			h.Take(id, syncertest.Ask("u-3", "key"))
			require.NoError(t, h.Load(id))
			require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeSoldOut},
				syncertest.OutcomesOf(h.Claim(id, syncertest.Asks("v", 2)...)))
			h.Sync()
			if refuses {
				require.Len(t, h.Compare(id).Differences, 1, "it is parked")
				h.Repair(id, false)
				h.Sync()
			}
			require.Empty(t, h.Compare(id).Differences)
			require.EqualValues(t, 3, h.Campaign(id).Claimed)
		})
	}
}

// A packet that two parked claims have is one, but uses the units of both.
func TestCompare_CountsAPacketOfTwoParkedClaims(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("p", 3))
	h.Exec("ALTER TABLE claims ADD CONSTRAINT not_u3 CHECK (user_id <> 'u-3')")
	before := syncertest.DumpRedis(t, h.Redis)
	h.Take(id, syncertest.Ask("u-3", "a"))
	before.Restore(t, h.Redis)
	h.Take(id, syncertest.Ask("u-3", "b"))
	require.NoError(t, h.Load(id))
	require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeSoldOut},
		syncertest.OutcomesOf(h.Claim(id, syncertest.Asks("v", 2)...)))
	h.Sync()
	require.Len(t, h.Compare(id).Differences, 2, "the parked claims")
}

func TestRound_RecordsWhatItFinds(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	c := h.Reconciler()
	differ, err := c.Round(t.Context())
	require.NoError(t, err)
	require.Zero(t, differ)
	h.Claim(id, syncertest.Asks("u", 4)...)
	h.Sync()
	h.Exec("UPDATE lots SET claimed = claimed + 1 WHERE id = ?", id)
	differ, err = c.Round(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, differ)
	var rows []stored.Reconciliation
	require.NoError(t, h.DB.Where("campaign_id = ?", id).Order("id").Find(&rows).Error)
	require.Len(t, rows, 2)
	require.Zero(t, *rows[0].Drift)
	require.NotZero(t, *rows[1].Drift)
}

func set(h *syncertest.Stack, id, field string, value int64) {
	h.T.Helper()
	require.NoError(h.T, h.Redis.HSet(h.T.Context(), h.Keys(id).State, field, value).Err())
}
