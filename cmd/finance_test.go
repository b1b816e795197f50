package cmd_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/testenv"
)

const claims = "dibs:{p0}:claims"

type parkedMessage struct {
	ID, Reason, Payload string
	EventID             string `json:"event_id"`
	Attempts            int64
}

// rain is a system where ada and bob claimed packets before a finance
// service ran. It returns their claims' ids.
func rain(t *testing.T) (s *servers, ids map[string]string) {
	t.Helper()
	s, ids = newServers(t), map[string]string{}
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", `{"id":"rain","kind":"packet","currency":"CNY","sender_id":"boss"}`)
	serve.post("/campaigns/rain/packets", `{"count":3,"amount":300,"split":"even"}`, "Idempotency-Key: once")
	for _, user := range []string{"ada", "bob"} {
		var claim struct{ ID, Currency string }
		serve.post("/campaigns/rain/claims", `{"user_id":"`+user+`"}`).into(t, &claim)
		require.Equal(t, "CNY", claim.Currency)
		ids[user] = claim.ID
	}
	serve.synced("rain", 2)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
	return s, ids
}

// credited waits for this number of entries, and this sum of accounts.
func (s *servers) credited(entries, amount int64) {
	s.t.Helper()
	eventually(s.t, "not everything is credited", func() bool {
		return s.number("SELECT COUNT(*) FROM account_entries") == entries && s.number("SELECT COALESCE(SUM(amount), 0) FROM accounts") == amount
	})
}

// The close runs with all roles, and with the finance service's own database.
func TestWhatIsLeftGoesBackToTheSender(t *testing.T) {
	t.Parallel()
	s, _ := rain(t)
	books := testenv.Database(t).DSN
	environ := s.with("DIBS_FINANCE_DSN=" + books)
	requireRefusal(t, run(t, environ, "finance"), cmd.ExitFailed, "dibs migrate")
	requireOK(t, run(t, environ, "migrate"))
	own := &servers{t: t, db: openSQL(t, books)}
	finance := start(t, environ, "finance")
	own.credited(2, 200)
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns/rain/close", "")
	own.credited(3, 300)
	require.EqualValues(t, 100, own.number("SELECT amount FROM accounts WHERE user_id = 'boss'"))
	require.Zero(t, s.number("SELECT COUNT(*) FROM account_entries"), "none in Dibs' own")
	require.Equal(t, cmd.ExitOK, finance.stop().code)
}

func TestFinanceRefusesFewerPartitionsThanThereAre(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	requireOK(t, run(t, s.environ, "reconcile")) // Redis gets its id
	require.NoError(t, s.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "dibs:{p2}:claims", Values: []any{"payload", "x"}}).Err())
	for _, command := range []string{"finance", "finance parked", "finance replay", "finance discard x"} {
		requireRefusal(t, run(t, s.environ, strings.Fields(command)...), cmd.ExitUsage, "DIBS_PARTITIONS", "dibs:{p2}:claims")
	}
	require.Equal(t, cmd.ExitOK, start(t, s.with("DIBS_PARTITIONS=3"), "finance").stop().code)
}

// One message conflicts with another entry, and one is unreadable.
func TestParkedMessagesAreListedReplayedAndDiscarded(t *testing.T) {
	t.Parallel()
	s, ids := rain(t)
	require.Empty(t, requireOK(t, run(t, s.environ, "finance", "parked", "-o", "json")))
	s.exec("INSERT INTO account_entries (claim_id, user_id, campaign_id, packet_id, amount, currency, claimed_at, credited_at)"+
		" VALUES (?, 'an impostor', 'rain', 'p', 4, 'EUR', NOW(3), NOW(3))", ids["ada"])
	require.NoError(t, s.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: claims, Values: []any{"junk", "1"}}).Err())
	// no consumer applies the junk
	finance := start(t, append(slices.Clone(s.environ), "DIBS_READ_AHEAD=true"), "finance")
	// the impostor's and bob's
	s.credited(2, 100)
	eventually(t, "nothing is parked", func() bool {
		return strings.Count(run(t, s.environ, "finance", "parked", "-o", "json").stdout, "\n") == 2
	})
	require.Equal(t, cmd.ExitOK, finance.stop().code)

	require.Regexp(t, `(?m)^p0/\S+ +`+ids["ada"]+` +\d+ +\S`, requireOK(t, run(t, s.environ, "finance", "parked")))
	byEvent := map[string]parkedMessage{}
	decoder := json.NewDecoder(strings.NewReader(requireOK(t, run(t, s.environ, "finance", "parked", "-o", "json"))))
	for decoder.More() {
		var m parkedMessage
		require.NoError(t, decoder.Decode(&m))
		byEvent[m.EventID] = m
	}
	adas, junk := byEvent[ids["ada"]], byEvent[""].ID
	require.Regexp(t, `^p0/\d+-\d+$`, adas.ID)
	require.NotEmpty(t, adas.Reason)
	require.Contains(t, adas.Payload, `"claim.accepted"`)
	require.Positive(t, adas.Attempts)

	got := run(t, s.environ, "finance", "replay")
	require.Equal(t, cmd.ExitFailed, got.code)
	require.Contains(t, got.stdout, "credited 0, still parked 2")
	require.Contains(t, got.stderr, "2 of 2 messages")
	s.exec("DELETE FROM account_entries WHERE user_id = 'an impostor'")
	got = run(t, s.environ, "finance", "replay", ids["ada"], "-o", "json")
	require.JSONEq(t, `{"handled":1,"left":null}`, requireOK(t, got))
	s.credited(2, 200)
	require.Contains(t, run(t, s.environ, "finance", "replay", "-o", "json").stdout, junk, "it is left")
	var deleted parkedMessage
	decode(t, requireOK(t, run(t, s.environ, "finance", "discard", junk)), &deleted)
	require.Equal(t, junk, deleted.ID, "what is deleted is printed")
	for _, verb := range []string{"discard", "replay"} {
		requireRefusal(t, run(t, s.environ, "finance", verb, junk), cmd.ExitFailed, "no such")
	}
	require.EqualValues(t, 1, s.number("SELECT COUNT(*) FROM audit_log WHERE action = 'parked.discarded'"), "of what was there")
	require.EqualValues(t, 3, s.number("SELECT COUNT(*) FROM audit_log WHERE action = 'parked.replayed'"), "of what was there")
	log := requireOK(t, run(t, s.environ, "audit"))
	require.Contains(t, log, "parked.replayed")
	require.Regexp(t, `cli:.* parked\.discarded .*id `+regexp.QuoteMeta(junk), log)
}
