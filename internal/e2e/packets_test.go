package e2e

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/oracle"
	"dibs/internal/testenv"
)

// rain is a whole Dibs with a finance service, for packets.
type rain struct {
	*ledger
	api, consumer, syncer, service *process
	audit                          *reader
}

func newRain(t *testing.T, w setup) *rain {
	t.Helper()
	w.settings = map[string]string{"DIBS_GROUPS": "syncer,finance,audit", "DIBS_READ_AHEAD": "false"}
	r := &rain{ledger: newLedger(t, w)}
	r.audit = readAlong(t, r.rdb, "audit", r.partitions)
	r.consumer = r.launch("consumer", map[string]string{"DIBS_NAME": "consumer-1"})
	r.syncer, r.service = r.launch("syncer", nil), r.launch("finance", map[string]string{"DIBS_NAME": "finance-1"})
	r.api = r.launch("api", nil)
	return r
}

// open makes a packet campaign over HTTP.
func (r *rain) open(shards int) (id string) {
	r.t.Helper()
	id = testenv.UniqueID(r.t, "rain")
	got := call(r.t, http.MethodPost, r.api.url+"/v1/campaigns", "", map[string]any{
		"id": id, "kind": "packet", "per_user": 1, "currency": "CNY", "sender_id": "boss-" + id[len(id)-8:], "shards": shards,
	})
	require.Equal(r.t, http.StatusCreated, got.status, got.body)
	return id
}

func (r *rain) add(id string, batch map[string]any) {
	r.t.Helper()
	got := call(r.t, http.MethodPost, r.api.url+"/v1/campaigns/"+id+"/packets", uuid.NewString(), batch)
	require.Equal(r.t, http.StatusCreated, got.status, got.body)
}

func (r *rain) shut(id string) {
	r.t.Helper()
	got := call(r.t, http.MethodPost, r.api.url+"/v1/campaigns/"+id+"/close", "", nil)
	require.Equal(r.t, http.StatusOK, got.status, got.body)
}

func (r *rain) number(query string, args ...any) (n int64) {
	r.t.Helper()
	require.NoError(r.t, r.db.QueryRowContext(r.t.Context(), query, args...).Scan(&n))
	return n
}

// requireSettled waits until a closed campaign is settled, and compares
// packets, claims, events, entries and the crowd's replies: each packet taken
// once, and each cent credited or returned once.
func (r *rain) requireSettled(id string, packets, amount int64, tally crowd.Tally) {
	t := r.t
	t.Helper()
	taken := int64(len(tally.Claims))
	sender := "boss-" + id[len(id)-8:]
	want := taken
	if taken < packets {
		want++ // the returned rest
	}
	eventually(t, drainWithin, "it is not settled", func() bool {
		return r.number("SELECT COUNT(*) FROM campaigns WHERE id = ? AND closed_told_at IS NOT NULL", id) == 1 &&
			r.number("SELECT COUNT(*) FROM account_entries WHERE campaign_id = ?", id) >= want &&
			r.number("SELECT COUNT(*) FROM outbox WHERE campaign_id = ?", id) == 0
	})
	require.Equal(t, want, r.number("SELECT COUNT(*) FROM account_entries WHERE campaign_id = ?", id))

	books, err := oracle.Read(t.Context(), r.db, id)
	require.NoError(t, err)
	var wrong report
	books.Answers(answersOf(tally), wrong.addf)
	books.Counters(wrong.addf)
	for _, c := range tally.Claims {
		if r := books.ByID[c.ID]; r != nil && r.Amount.Int64 != *c.Amount {
			wrong.addf("claim %s was answered %d cents, its row has %d", c.ID, *c.Amount, r.Amount.Int64)
		}
	}
	events, faults := r.audit.of(id)
	require.Empty(t, faults)
	books.Stream(slices.Collect(maps.Values(events)), wrong.addf)
	money, err := books.Packets(t.Context(), r.db, sender, true, wrong.addf)
	require.NoError(t, err)
	require.NoError(t, oracle.Accounts(t.Context(), r.db, wrong.addf))
	require.Empty(t, wrong)
	require.Equal(t, amount, money.In)
	require.Equal(t, packets-taken, r.number("SELECT COUNT(*) FROM packets WHERE campaign_id = ? AND claim_id IS NULL AND returned_at IS NOT NULL", id))
}

// A crowd takes every packet of one campaign. Another is closed under load
// while the consumer, the finance service and the syncer are killed.
func TestPacketsAreTakenOnceAndTheRestGoesBackToTheCent(t *testing.T) {
	t.Parallel()
	packets, users, connections := int64(testenv.Pick(800, 100_000)), testenv.Pick(1_200, 150_000), testenv.Pick(50, 200)
	r := newRain(t, setup{})
	for _, story := range []struct {
		name  string
		close int // number of answered users; 0 is after all
		wave  time.Duration
	}{{"to the last packet", 0, 0}, {"closed in mid-rush", users / 3, time.Second}} {
		id, amount := r.open(1), packets*700+13
		r.add(id, map[string]any{"count": packets - 100, "amount": amount - 10_000, "split": "double_mean"})
		r.add(id, map[string]any{"count": 100, "amount": 10_000, "split": "random_cut", "release_at": time.Now().Add(story.wave)})
		rush := startRush(t, crowd.Plan{
			BaseURLs: []string{r.api.url}, CampaignID: id, Users: users, Connections: connections, Again: func(user int) bool { return story.close == 0 && user%10 == 0 },
		})
		if story.close > 0 {
			rush.reaches(story.close)
			r.shut(id)
			for _, p := range []*process{r.consumer, r.syncer, r.service} {
				p.kill9()
				p.restart()
			}
		}
		tally := rush.wait()
		require.Empty(t, tally.Faults)
		if story.close == 0 {
			r.shut(id)
			require.Equal(t, packets, tally.Units)
		} else {
			require.Positive(t, tally.Refused["closed"], story.name)
			require.Less(t, tally.Units, packets)
		}
		r.requireSettled(id, packets, amount, tally)
		t.Logf("%s: %d requests in %s, %d of %d packets taken, refused %v", story.name, tally.Sent, tally.Took, tally.Accepted, packets, tally.Refused)
	}
}
