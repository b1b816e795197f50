package oracle_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/oracle"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// story is a campaign of ten units whose three claims took six,
// one of them released, with everything known about it.
type story struct {
	books   oracle.Books
	answers map[string]oracle.Answer
	events  []event.Event
	perUser int64
	perDay  int64
}

func truth() *story {
	at := models.NewTime(time.Now())
	s := &story{answers: map[string]oracle.Answer{}, books: oracle.Books{ID: "c", ByID: map[string]*oracle.Row{}}}
	for i, user := range []string{"ada", "bob", "eve"} {
		n := int64(i + 1)
		c := models.Claim{ID: "claim of " + user, UserID: user, Quantity: n, Seq: n, ClaimedAt: at}
		s.answers[user] = oracle.Answer{User: user, Mark: oracle.Mark(user, "k"), Quantity: n, Claim: &c}
		s.events = append(s.events, event.Event{ID: c.ID, UserID: user, Quantity: n, Seq: n, At: at})
		s.books.Rows = append(s.books.Rows, oracle.Row{
			ID: c.ID, Key: oracle.Mark(user, "k"), User: user, Quantity: n, Seq: n, Status: models.ClaimClaimed, At: at.Time,
		})
	}
	s.books.Rows[0].Status = models.ClaimReleased
	b := &s.books
	b.Total, b.Claimed, b.Remaining, b.Synced, b.FlushedUnits, b.FlushedClaims, b.Live, b.Ever = 10, 5, 5, 3, 6, 3, 5, 6
	for i := range b.Rows {
		b.ByID[b.Rows[i].ID] = &b.Rows[i]
	}
	return s
}

func (s *story) check() (found []string) {
	wrong := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	s.books.Answers(slices.Collect(maps.Values(s.answers)), wrong)
	s.books.Counters(wrong)
	s.books.Sequence(1, false, wrong)
	s.books.Stream(s.events, wrong)
	s.books.Limits(s.perUser, s.perDay, time.UTC, wrong)
	return found
}

func change(user string, alter func(a *oracle.Answer)) func(s *story) {
	return func(s *story) {
		a := s.answers[user]
		claim := *a.Claim
		a.Claim = &claim
		alter(&a)
		s.answers[user] = a
	}
}

// A check that finds nothing would pass every test.
func TestEveryLieIsTold(t *testing.T) {
	t.Parallel()
	require.Empty(t, truth().check())
	for words, lie := range map[string]func(s *story){
		"was answered and has no row":           change("bob", func(a *oracle.Answer) { a.Claim.ID = "phantom" }),
		"no one asked for claim claim of bob":   func(s *story) { delete(s.answers, "bob") },
		"bob of c was answered sold_out":        change("bob", func(a *oracle.Answer) { a.Claim, a.Refused = nil, "sold_out" }),
		"is of 2, the user asked for 3":         change("bob", func(a *oracle.Answer) { a.Claim, a.Unsure, a.Quantity = nil, true, 3 }),
		"claim of bob of c: bob wanted 3":       change("bob", func(a *oracle.Answer) { a.Quantity = 3 }),
		"two were answered claim claim of bob":  func(s *story) { s.answers["again"] = s.answers["bob"] },
		"claim of bob of c: bob wanted 2":       change("bob", func(a *oracle.Answer) { a.Claim.UserID = "somebody" }),
		"claim of eve of c: eve wanted 3":       change("eve", func(a *oracle.Answer) { a.Claim.ClaimedAt = models.NewTime(a.Claim.ClaimedAt.Add(time.Second)) }),
		"claim of ada of c: ada wanted 1":       change("ada", func(a *oracle.Answer) { a.Claim.Seq = 7 }),
		"claimed in MySQL":                      func(s *story) { s.books.Claimed++ },
		"remaining in MySQL":                    func(s *story) { s.books.Remaining++ },
		"synced_seq":                            func(s *story) { s.books.Synced++ },
		"parked events":                         func(s *story) { s.books.Parked++ },
		"claims that are lost":                  func(s *story) { s.books.Lost++ },
		"units of stock_flushes":                func(s *story) { s.books.FlushedUnits++ },
		"claims of stock_flushes":               func(s *story) { s.books.FlushedClaims++ },
		"claim of eve has seq 9, the one":       func(s *story) { s.books.Rows[2].Seq = 9 },
		"of eve is of shard 1, the user's is 0": func(s *story) { s.books.Rows[2].Shard, s.books.Rows[2].Seq = 1, 1 },
		"the stream has 2 claims":               func(s *story) { s.events = s.events[1:] },
		"the stream says":                       func(s *story) { s.events[1].Quantity++ },
		"eve has 3 units of 2":                  func(s *story) { s.perUser = 2 },
		"units of 2 with seq 3":                 func(s *story) { s.perDay = 2 },
	} {
		s := truth()
		lie(s)
		require.Contains(t, fmt.Sprint(s.check()), words)
	}
	doubts := truth()
	change("bob", func(a *oracle.Answer) { a.Claim, a.Unsure = nil, true })(doubts)
	require.Empty(t, doubts.check(), "who doubts may have a claim")
}

// A false alarm on consistent servers, or a surplus not found,
// would make every other result worthless.
func TestWhatIsRead(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	h.Take(id, syncertest.Asks("u", 3)...)
	h.Sync()
	check := func() (found []string) {
		wrong := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
		b, err := oracle.Read(t.Context(), h.DB.ConnPool, id)
		require.NoError(t, err)
		require.Len(t, b.Rows, 3)
		b.Counters(wrong)
		b.Redis(t.Context(), h.Scripts, wrong)
		return found
	}
	require.Empty(t, check())
	state := lua.KeysOf(id, 0).State
	for words, field := range map[string]string{"units taken in Redis": "taken", "seq in Redis": "seq", "total in Redis": "total"} {
		require.NoError(t, h.Redis.HIncrBy(t.Context(), state, field, 1).Err())
		require.Contains(t, fmt.Sprint(check()), words)
		require.NoError(t, h.Redis.HIncrBy(t.Context(), state, field, -1).Err())
	}
	require.NoError(t, h.DB.Exec("UPDATE lots SET claimed = claimed + 1 WHERE id = ?", id).Error)
	require.Contains(t, fmt.Sprint(check()), "claimed in MySQL and units of live rows: 4 and 3")
}

func TestPackets(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("p", 3))
	h.Take(id, syncertest.Asks("u", 3)...)
	h.Sync()
	exec := func(statement string) { require.NoError(t, h.DB.Exec(statement).Error) }
	check := func(words string) {
		t.Helper()
		var found []string
		wrong := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
		b, err := oracle.Read(t.Context(), h.DB.ConnPool, id)
		require.NoError(t, err)
		money, err := b.Packets(t.Context(), h.DB.ConnPool, "boss", true, wrong)
		require.NoError(t, err)
		require.EqualValues(t, 1+2+3, money.In)
		require.NoError(t, oracle.Accounts(t.Context(), h.DB.ConnPool, wrong))
		if words == "" {
			require.Empty(t, found)
		}
		require.Contains(t, fmt.Sprint(found), words)
	}
	check("and which has 0 credits")
	exec("INSERT INTO account_entries (claim_id, user_id, campaign_id, packet_id, amount, currency, claimed_at, credited_at)" +
		" SELECT claim_id, user_id, campaign_id, id, amount, 'CNY', NOW(3), NOW(3) FROM packets")
	exec("INSERT INTO accounts (user_id, currency, amount, entries, updated_at) SELECT user_id, currency, amount, 1, NOW(3) FROM account_entries")
	check("")
	exec("UPDATE accounts SET amount = amount + 1 LIMIT 1")
	check("accounts that differ from their entries and none: 1 and 0")
	exec("UPDATE packets SET returned_at = NOW(3) LIMIT 1")
	check("has an owner and was returned")
	check("packets with an owner and rows: 2 and 3")
	exec("UPDATE account_entries SET amount = 100")
	check("cents credited and cents owned or returned: 303 and 3")
}
