package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
	"dibs/models"
)

// rain is a whole Dibs with a finance service, for packets.
type rain struct {
	*ledger
	api, consumer, syncer, service *process
	audit                          *reader
}

func newRain(t *testing.T) *rain {
	t.Helper()
	r := &rain{ledger: newLedger(t, wishes{settings: map[string]string{"DIBS_GROUPS": "syncer,finance,audit", "DIBS_READ_AHEAD": "false"}})}
	r.audit = readAlong(t, r.rdb, "audit", 1)
	r.consumer = r.launch("consumer", map[string]string{"DIBS_NAME": "consumer-1"})
	r.syncer, r.service = r.launch("syncer", nil), r.launch("finance", map[string]string{"DIBS_NAME": "finance-1"})
	r.api = r.launch("api", nil)
	return r
}

// open makes a packet campaign over HTTP.
func (r *rain) open() (id string) {
	r.t.Helper()
	id = testenv.UniqueID(r.t, "rain")
	got := call(r.t, http.MethodPost, r.api.url+"/v1/campaigns", "", map[string]any{
		"id": id, "kind": "packet", "per_user": 1, "currency": "CNY", "sender_id": "boss-" + id[len(id)-8:],
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

// requireSettled waits until a closed campaign of so many packets is settled, and holds packets, claims, events, entries and what
// the crowd was told against each other: each packet taken once, and each cent that was put in credited or returned, once.
func (r *rain) requireSettled(id string, packets, amount int64, tally crowd.Tally) {
	t := r.t
	t.Helper()
	taken := int64(len(tally.Claims))
	sender := "boss-" + id[len(id)-8:]
	want := taken
	if taken < packets {
		want++ // what went back
	}
	eventually(t, drainWithin, "it is not settled", func() bool {
		return r.number("SELECT COUNT(*) FROM campaigns WHERE id = ? AND closed_told_at IS NOT NULL", id) == 1 &&
			r.number("SELECT COUNT(*) FROM account_entries WHERE campaign_id = ?", id) >= want &&
			r.number("SELECT COUNT(*) FROM outbox WHERE campaign_id = ?", id) == 0
	})
	require.Equal(t, want, r.number("SELECT COUNT(*) FROM account_entries WHERE campaign_id = ?", id))
	require.Zero(t, r.number("SELECT COUNT(*) FROM parked_events WHERE campaign_id = ?", id))

	told := map[string]string{} // by packet
	var credited int64
	for _, c := range tally.Claims {
		require.Empty(t, told[c.PacketID], "packet %s was given to two", c.PacketID)
		told[c.PacketID] = fmt.Sprint(c.ID, " ", c.UserID, " ", *c.Amount)
		credited += *c.Amount
	}
	require.Equal(t, told, r.told("SELECT id, CONCAT(claim_id, ' ', user_id, ' ', amount) FROM packets WHERE claim_id IS NOT NULL AND returned_at IS NULL"+
		" AND campaign_id = '"+id+"'"), "owners")
	require.Equal(t, told, r.told("SELECT packet_id, CONCAT(claim_id, ' ', user_id, ' ', amount) FROM account_entries WHERE packet_id IS NOT NULL"+
		" AND campaign_id = '"+id+"'"), "entries")
	events, faults := r.audit.of(id)
	require.Empty(t, faults)
	require.Equal(t, told, eventsTold(events), "events")

	require.Equal(t, packets-taken, r.number("SELECT COUNT(*) FROM packets WHERE campaign_id = ? AND claim_id IS NULL AND returned_at IS NOT NULL", id))
	returned := r.number("SELECT COALESCE(SUM(amount), 0) FROM account_entries WHERE campaign_id = ? AND packet_id IS NULL AND user_id = ?", id, sender)
	require.Equal(t, amount, credited+returned)
	require.Equal(t, amount, r.number("SELECT SUM(amount) FROM account_entries WHERE campaign_id = ?", id))
	require.Equal(t, returned, r.number("SELECT COALESCE(SUM(amount), 0) FROM accounts WHERE user_id = ?", sender))
}

// told reads two columns.
func (r *rain) told(query string) map[string]string {
	r.t.Helper()
	told := map[string]string{}
	r.scan(query, func(packet, says string) {
		if told[packet] != "" {
			says += " and " + told[packet]
		}
		told[packet] = says
	})
	return told
}

func eventsTold(events map[string]models.Event) map[string]string {
	told := map[string]string{}
	for _, e := range events {
		told[e.PacketID] += fmt.Sprint(e.ID, " ", e.UserID, " ", *e.Amount)
	}
	return told
}

// A crowd takes every packet; another is closed upon, with the consumer, the finance service and the syncer killed just then.
func TestPacketsAreTakenOnceAndTheRestGoesBackToTheCent(t *testing.T) {
	t.Parallel()
	packets, users, connections := int64(testenv.Pick(800, 100_000)), testenv.Pick(1_200, 150_000), testenv.Pick(50, 200)
	r := newRain(t)
	for _, story := range []struct {
		name  string
		close int // when so many users were answered; 0 is after all
		wave  time.Duration
	}{{"to the last packet", 0, 0}, {"closed in mid-rush", users / 3, time.Second}} {
		id, amount := r.open(), packets*700+13
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

// What a claim of packets is refused for, over HTTP, and what a closed campaign says; nothing of it takes a packet.
func TestPacketsRefuseWhatCanNotBe(t *testing.T) {
	t.Parallel()
	r := newRain(t)
	id := r.open()
	require.Equal(t, "sold_out", claimOnce(t, r.api.url, id, "early", 1, "").code(), "no packets yet")
	r.add(id, map[string]any{"packets": []map[string]any{{"id": "a", "amount": 5}, {"id": "b", "amount": 7}}, "release_at": time.Now().Add(time.Hour)})
	got := claimOnce(t, r.api.url, id, "greedy", 2, "")
	require.Equal(t, http.StatusUnprocessableEntity, got.status, got.body)
	got = claimOnce(t, r.api.url, id, "early", 1, "")
	require.Equal(t, http.StatusConflict, got.status, got.body)
	require.Equal(t, "not_released", got.code())
	r.shut(id)
	got = claimOnce(t, r.api.url, id, "late", 1, "")
	require.Equal(t, []any{http.StatusConflict, "closed"}, []any{got.status, got.code()})
	got = call(t, http.MethodPost, r.api.url+"/v1/campaigns/"+id+"/packets", "", map[string]any{"packets": []map[string]any{{"id": "c", "amount": 5}}})
	require.Equal(t, []any{http.StatusConflict, "closed"}, []any{got.status, got.code()})
	r.requireSettled(id, 2, 12, crowd.Tally{})
}

// Every process but the servers is killed at random points of adding packets, claiming, flushing, closing and returning, and
// started again.
func TestPacketsKilledAtRandomPointsAreExact(t *testing.T) {
	t.Parallel()
	r := newRain(t)
	const packets, users = 600, 900
	for round := range testenv.Pick(2, 25) {
		id, amount := r.open(), int64(0)
		var list []map[string]any
		for i := range int64(packets) {
			list = append(list, map[string]any{"id": fmt.Sprintf("p%d", i), "amount": i + 1})
			amount += i + 1
		}
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			victims := []*process{r.api, r.consumer, r.syncer, r.service}
			for _, i := range rand.Perm(len(victims)) { // a dead leader's place is free after some seconds only
				<-time.After(rand.N(300 * time.Millisecond)) // anywhere in their work
				_ = victims[i].cmd.Process.Kill()
				<-victims[i].exited
				victims[i].start()
			}
		}()
		r.insist("/v1/campaigns/"+id+"/packets", map[string]any{"packets": list}) // a list is known again
		rush := startRush(t, crowd.Plan{BaseURLs: []string{r.api.url}, CampaignID: id, Users: users, Connections: 20})
		rush.reaches(users * (round%3 + 1) / 6)
		r.insist("/v1/campaigns/"+id+"/close", nil)
		tally := rush.wait()
		<-killed
		t.Logf("round %d: %d packets taken, refused %v, %d in trouble", round, tally.Accepted, tally.Refused, tally.Unready+tally.Unknown)
		for _, p := range []*process{r.api, r.consumer, r.syncer, r.service} {
			p.awaitUp()
		}
		require.Empty(t, tally.Faults)
		r.requireSettled(id, packets, amount, tally)
	}
}

// insist posts until it is answered with a yes.
func (r *rain) insist(path string, body any) {
	r.t.Helper()
	eventually(r.t, upTimeout, "no answer to "+path, func() bool {
		got := call(r.t, http.MethodPost, r.api.url+path, "", body)
		return got.err == nil && got.status/100 == 2
	})
}
