package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/internal/webhooks"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	oldSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	newSecret = "whsec_YWJjZGVmZ2hpamFiY2RlZmdoaWphYmNkZWZnaGlqYWI="
)

// got is an accepted or refused delivery.
type got struct {
	id   string
	body webhooks.Body
	seq  int64
}

// receiver is an endpoint that verifies every delivery with the newer secret.
type receiver struct {
	*httptest.Server

	answer atomic.Pointer[func(got) int] // nil: 204

	mu       sync.Mutex
	all      []got // every request
	accepted map[string][]got
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{accepted: map[string][]got{}}
	verifier, err := standard.NewWebhook(newSecret)
	require.NoError(t, err)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = verifier.Verify(body, req.Header)
		}
		var e event.Event
		one := got{id: req.Header.Get("Webhook-Id")}
		if err == nil {
			err = json.Unmarshal(body, &one.body)
		}
		if err == nil {
			e, err = event.Decode(one.body.Data)
			one.seq = e.Seq
		}
		if err != nil || e.ID != one.id || e.Type != one.body.Type || !e.At.Equal(one.body.Timestamp.Time) {
			t.Errorf("a delivery that is none: %v %s", err, body)
		}
		status := http.StatusNoContent
		if answer := r.answer.Load(); answer != nil {
			status = (*answer)(one)
		}
		r.mu.Lock()
		r.all = append(r.all, one)
		if status == http.StatusNoContent {
			r.accepted[e.CampaignID] = append(r.accepted[e.CampaignID], one)
		}
		r.mu.Unlock()
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(how func(got) int) { r.answer.Store(&how) }

// seqs returns the seqs of accepted claims, in order of first arrival.
func (r *receiver) seqs(campaign string) (seqs []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, one := range r.accepted[campaign] {
		if !seen[one.id] {
			seqs = append(seqs, one.seq)
		}
		seen[one.id] = true
	}
	return seqs
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

func endpoint(name, url string, campaigns ...string) string {
	list, _ := json.Marshal(campaigns)
	return fmt.Sprintf(`{"name":%q,"url":%q,"secrets":[%q,%q],"events":["claim.accepted"],"campaigns":%s}`, name, url, oldSecret, newSecret, list)
}

func endpoints(t *testing.T, list ...string) webhooks.Endpoints {
	t.Helper()
	all, err := webhooks.Parse([]byte(`{"endpoints":[` + strings.Join(list, ",") + `]}`))
	require.NoError(t, err)
	return all
}

type post struct {
	t *testing.T
	*webhooks.Dispatcher

	stop    func()
	settled atomic.Int64
	failed  atomic.Int64
}

func start(t *testing.T, cfg webhooks.Config) *post {
	t.Helper()
	return startReading(t, cfg, func(ctx context.Context, _ *webhooks.Dispatcher) error { <-ctx.Done(); return nil })
}

func startReading(t *testing.T, cfg webhooks.Config, read func(context.Context, *webhooks.Dispatcher) error) *post {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = syncertest.Quiet()
	}
	d := webhooks.New(cfg.Hurry())
	p := &post{t: t, Dispatcher: d}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	started, ended := make(chan struct{}), make(chan error, 1)
	start := sync.OnceFunc(func() { close(started) })
	go func() {
		ended <- d.Run(ctx, func(ctx context.Context) error {
			start()
			return read(ctx, d)
		})
	}()
	<-started
	p.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(p.stop)
	return p
}

func (p *post) submit(campaign string, from, to int64) {
	p.t.Helper()
	var batch []event.Raw
	for seq := from; seq <= to; seq++ {
		e := event.Event{
			V: event.Version, Type: event.ClaimAccepted, ID: fmt.Sprintf("%s-%d", campaign, seq), CampaignID: campaign,
			UserID: "ada", Quantity: 1, Seq: seq, At: models.NewTime(time.Now()),
		}
		payload, err := json.Marshal(e)
		require.NoError(p.t, err)
		batch = append(batch, event.Raw{Event: e, Payload: payload})
	}
	p.Submit(p.t.Context(), batch, func(_ int, err error) {
		if err != nil {
			p.failed.Add(1)
			return
		}
		p.settled.Add(1)
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 5*time.Millisecond, what)
}

func upTo(from, to int64) (seqs []int64) {
	for seq := from; seq <= to; seq++ {
		seqs = append(seqs, seq)
	}
	return seqs
}

func rows(t *testing.T, db *gorm.DB) (n int64) {
	t.Helper()
	require.NoError(t, db.Model(&stored.WebhookEvent{}).Count(&n).Error)
	return n
}

func fixed(all webhooks.Endpoints) func() webhooks.Endpoints {
	return func() webhooks.Endpoints { return all }
}

// Events of a failing receiver must go to the table at once, so
// that nothing else waits, and must finally arrive in order.
func TestDispatcher_AReceiverThatFailsGetsAllOfItInOrder(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		bad, good := newReceiver(t), newReceiver(t)
		var calls atomic.Int64
		bad.answers(func(got) int { return []int{204, 500, 302}[calls.Add(1)%3] })
		reg := prometheus.NewPedanticRegistry()
		p := start(t, webhooks.Config{
			DB: db, Endpoints: fixed(endpoints(t, endpoint("bad", bad.URL), endpoint("good", good.URL))), Registerer: reg,
		})
		for n := range int64(5) {
			p.submit("spring", 20*n+1, 20*n+20)
		}
		eventually(t, "settled", func() bool { return p.settled.Load() == 100 })
		require.Equal(t, upTo(1, 100), good.seqs("spring"))
		eventually(t, "delivered", func() bool { return len(bad.seqs("spring")) == 100 })
		require.Equal(t, upTo(1, 100), bad.seqs("spring"))
		eventually(t, "the table is empty", func() bool { return rows(t, db) == 0 })
		bad.answers(func(got) int { return 204 })
		p.submit("spring", 101, 110)
		eventually(t, "delivered", func() bool { return len(bad.seqs("spring")) == 110 })
		require.Equal(t, upTo(1, 110), bad.seqs("spring"))
		count, err := testutil.GatherAndCount(reg, "dibs_webhook_waiting_events", "dibs_webhook_oldest_seconds", "dibs_webhook_delay_seconds")
		require.NoError(t, err)
		require.Equal(t, 6, count)
	})
}

// A campaign that an endpoint refuses or stalls on must not delay its others.
func TestDispatcher_ACampaignDoesNotHoldUpAnother(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	hang := make(chan struct{})
	r.answers(func(one got) int {
		switch one.id[:4] {
		case "rain":
			return 500
		case "snow":
			<-hang
		}
		return 204
	})
	p := start(t, webhooks.Config{DB: syncertest.OpenServer(t), Endpoints: fixed(endpoints(t, endpoint("shop", r.URL)))})
	p.submit("rain", 1, 50)
	p.submit("snow", 1, 600) // more than a lane has in memory
	p.submit("spring", 1, 50)
	eventually(t, "delivered", func() bool { return len(r.seqs("spring")) == 50 })
	eventually(t, "settled, but for the one that hangs", func() bool { return p.settled.Load() == 699 })
	close(hang)
	r.answers(func(got) int { return 204 })
	eventually(t, "delivered", func() bool { return len(r.seqs("snow")) == 600 && len(r.seqs("rain")) == 50 })
	require.Equal(t, upTo(1, 600), r.seqs("snow"))
	require.Equal(t, upTo(1, 50), r.seqs("rain"))
}

// An event tried for too long must be parked, the next delivery
// must report it once, and order must resume.
func TestDispatcher_ParksAndAnnouncesTheGap(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		r := newReceiver(t)
		r.answers(func(got) int { return 410 })
		reg := prometheus.NewRegistry()
		cfg := webhooks.Config{
			DB: db, Endpoints: fixed(endpoints(t, endpoint("shop", r.URL))), GiveUpAfter: 100 * time.Millisecond, Registerer: reg,
		}
		p := start(t, cfg)
		p.submit("spring", 1, 7)
		eventually(t, "parked", func() bool {
			var n int64
			require.NoError(t, db.Model(&stored.WebhookEvent{}).Where("parked_at IS NOT NULL AND reason LIKE '%answered 410%'").Count(&n).Error)
			return n == 7
		})
		p.stop()
		cfg.Registerer = prometheus.NewRegistry()
		p = start(t, cfg) // the gap outlives the process
		r.answers(func(got) int { return 204 })
		p.submit("spring", 8, 10)
		eventually(t, "delivered", func() bool { return len(r.seqs("spring")) == 3 })
		r.mu.Lock()
		defer r.mu.Unlock()
		taken := r.accepted["spring"]
		require.Equal(t, &webhooks.Gap{Events: 7, FirstID: "spring-1", LastID: "spring-7"}, taken[0].body.Gap)
		require.Nil(t, taken[1].body.Gap)
		require.Nil(t, taken[2].body.Gap)
		require.EqualValues(t, 8, taken[0].seq)
	})
}

// The event in progress when the process ended must come before
// later ones in the table.
func TestDispatcher_WhatWasUnderWayComesFirst(t *testing.T) {
	t.Parallel()
	db, r := syncertest.OpenServer(t), newReceiver(t)
	release := make(chan struct{})
	r.answers(func(got) int { <-release; return 503 })
	cfg := webhooks.Config{DB: db, Endpoints: fixed(endpoints(t, endpoint("shop", r.URL)))}
	p := start(t, cfg)
	p.submit("spring", 1, 300)
	eventually(t, "all but the first are in the table", func() bool { return p.settled.Load() == 299 })
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.stop()
	}()
	eventually(t, "it stops", func() bool { p.submit("spring", 301, 301); return p.failed.Load() > 0 })
	r.answers(func(got) int { return 204 })
	close(release)
	<-stopped
	p = start(t, cfg)
	eventually(t, "what the table has is delivered", func() bool { return rows(t, db) == 0 })
	p.submit("spring", 1, 1) // not acknowledged
	eventually(t, "settled", func() bool { return p.settled.Load() == 1 })
	seqs := r.seqs("spring")
	require.Equal(t, upTo(1, 300), seqs[:300])
}

// While MySQL is down no event may be settled unless its receiver has it. A
// stop must settle it with an error, so that it comes again.
func TestDispatcher_SettlesNothingThatIsNowhere(t *testing.T) {
	t.Parallel()
	db, bad, good := syncertest.OpenServer(t), newReceiver(t), newReceiver(t)
	bad.answers(func(got) int { return 500 })
	p := start(t, webhooks.Config{DB: db, Endpoints: fixed(endpoints(t, endpoint("bad", bad.URL), endpoint("good", good.URL, "rain")))})
	require.NoError(t, sqlstore.Close(db))
	p.submit("spring", 1, 5)
	eventually(t, "tried", func() bool { return bad.count() > 0 })
	p.submit("rain", 1, 5)
	eventually(t, "the other has it", func() bool { return len(good.seqs("rain")) == 5 })
	require.Zero(t, p.settled.Load())
	p.stop()
	require.EqualValues(t, 10, p.failed.Load())
	p.submit("spring", 6, 6)
	require.EqualValues(t, 11, p.failed.Load(), "what comes after the stop is not taken")
}

func TestDispatcher_AnEndpointThatIsTakenOutOfTheFileWaitsForItsReturn(t *testing.T) {
	t.Parallel()
	db, r := syncertest.OpenServer(t), newReceiver(t)
	r.answers(func(got) int { return 500 })
	var now atomic.Pointer[webhooks.Endpoints]
	with, without := endpoints(t, endpoint("shop", r.URL)), webhooks.Endpoints{}
	now.Store(&with)
	p := start(t, webhooks.Config{DB: db, Endpoints: func() webhooks.Endpoints { return *now.Load() }, GiveUpAfter: time.Hour})
	p.submit("spring", 1, 5)
	eventually(t, "stored", func() bool { return rows(t, db) == 5 })
	now.Store(&without)
	r.answers(func(got) int { return 204 })
	p.submit("spring", 6, 9)
	eventually(t, "no one wants them", func() bool { return p.settled.Load() == 9 })
	now.Store(&with)
	eventually(t, "delivered", func() bool { return len(r.seqs("spring")) == 5 })
	require.True(t, slices.IsSorted(r.seqs("spring")))
}

// Events in memory wait like those of the table.
func TestDispatcher_WhatWaitsInMemoryIsKeptForAnEndpointThatReturns(t *testing.T) {
	t.Parallel()
	db, r := syncertest.OpenServer(t), newReceiver(t)
	release := make(chan struct{})
	r.answers(func(got) int { <-release; return 204 })
	var now atomic.Pointer[webhooks.Endpoints]
	with, without := endpoints(t, endpoint("shop", r.URL)), webhooks.Endpoints{}
	now.Store(&with)
	p := start(t, webhooks.Config{DB: db, Endpoints: func() webhooks.Endpoints { return *now.Load() }, GiveUpAfter: time.Hour})
	p.submit("spring", 1, 5)
	now.Store(&without)
	close(release)
	eventually(t, "settled", func() bool { return p.settled.Load() == 5 })
	now.Store(&with)
	p.submit("spring", 6, 6)
	eventually(t, "delivered", func() bool { seqs := r.seqs("spring"); return len(seqs) > 0 && seqs[len(seqs)-1] == 6 })
	require.Equal(t, upTo(1, 6), r.seqs("spring"))
}

func TestReplay_PostsWhatWasParkedAndDiscardDeletesIt(t *testing.T) {
	t.Parallel()
	db, r := syncertest.OpenServer(t), newReceiver(t)
	all := endpoints(t, endpoint("shop", r.URL))
	park := func(campaign string, seq int64) {
		event := event.Event{V: 1, Type: event.ClaimAccepted, ID: fmt.Sprintf("%s-%d", campaign, seq), CampaignID: campaign, UserID: "ada", Quantity: 1,
			Seq: seq, At: models.NewTime(time.Now())}
		payload, err := json.Marshal(event)
		require.NoError(t, err)
		require.NoError(t, db.Create(&stored.WebhookEvent{
			Endpoint: "shop", CampaignID: campaign, No: seq, EventID: event.ID, Type: event.Type, At: event.At.Time, Payload: payload,
			CreatedAt: sqlstore.Now(), ParkedAt: new(sqlstore.Now()),
		}).Error)
	}
	for seq := range int64(5) {
		park("spring", seq+1)
		park("rain", seq+1)
	}
	r.answers(func(one got) int {
		if one.id == "rain-3" {
			return 500
		}
		return 204
	})
	d := webhooks.New(webhooks.Config{DB: db, Endpoints: fixed(all), Logger: syncertest.Quiet()})
	taken, left, err := d.Replay(t.Context(), webhooks.Which{Endpoint: "shop"})
	require.NoError(t, err)
	require.EqualValues(t, 7, taken)
	require.EqualValues(t, 3, left)
	require.Equal(t, upTo(1, 5), r.seqs("spring"))
	require.Equal(t, upTo(1, 2), r.seqs("rain"), "those behind it wait")
	require.Equal(t, []string{"rain-3"}, idsOf(t, webhooks.Discard(t.Context(), db, webhooks.Which{EventID: "rain-3"})))
	_, left, err = d.Replay(t.Context(), webhooks.Which{})
	require.NoError(t, err)
	require.Zero(t, left)
	require.Zero(t, rows(t, db))
}

// However many are parked, all are listed and discarded, in order.
func TestParked_AllAreListedAndDiscarded(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		var rows []stored.WebhookEvent
		var all []string
		for _, endpoint := range []string{"other", "shop"} {
			for _, campaign := range []string{"rain", "spring"} {
				for no := range int64(300) {
					id := fmt.Sprint(endpoint, campaign, no)
					all = append(all, id)
					rows = append(rows, stored.WebhookEvent{
						Endpoint: endpoint, CampaignID: campaign, No: no, EventID: id, At: sqlstore.Now(), Payload: []byte("{}"),
						CreatedAt: sqlstore.Now(), ParkedAt: new(sqlstore.Now()),
					})
				}
			}
		}
		require.NoError(t, db.CreateInBatches(rows, 200).Error)
		require.Equal(t, all, idsOf(t, webhooks.Parked(t.Context(), db, webhooks.Which{})))
		require.Equal(t, all[600:], idsOf(t, webhooks.Discard(t.Context(), db, webhooks.Which{Endpoint: "shop"})))
		require.Equal(t, all[:600], idsOf(t, webhooks.Parked(t.Context(), db, webhooks.Which{})))
		isAny, err := webhooks.IsAnyParked(t.Context(), db, webhooks.Which{Endpoint: "shop"})
		require.NoError(t, err)
		require.False(t, isAny)
	})
}

func idsOf(t *testing.T, events iter.Seq2[stored.WebhookEvent, error]) (ids []string) {
	t.Helper()
	for e, err := range events {
		require.NoError(t, err)
		ids = append(ids, e.EventID)
	}
	return ids
}

// A slow receiver must get many events at once, in order, also
// those from the table, and again after a failure.
func TestDispatcher_DeliversBatches(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		const events = 1500
		var mu sync.Mutex
		var seqs []int64
		posts, largest := 0, 0
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var batch webhooks.Batch
			verifier, err := standard.NewWebhook(newSecret)
			body, failed := io.ReadAll(r.Body)
			if err := errors.Join(err, failed, verifier.Verify(body, r.Header), json.Unmarshal(body, &batch)); err != nil {
				t.Errorf("a delivery that is none: %v %s", err, body)
			}
			mu.Lock()
			defer mu.Unlock()
			posts++
			largest = max(largest, len(batch.Events))
			if posts == 3 {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			for _, one := range batch.Events {
				event, err := event.Decode(one.Data)
				if err != nil {
					t.Errorf("no event: %v", err)
				}
				seqs = append(seqs, event.Seq)
			}
		}))
		defer receiver.Close()
		all := endpoints(t, strings.Replace(endpoint("shop", receiver.URL), `"events"`, `"batch":100,"events"`, 1))
		p := start(t, webhooks.Config{DB: db, Endpoints: fixed(all)})
		p.submit("spring", 1, events)
		eventually(t, "all are delivered", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seqs) >= events
		})
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, upTo(1, events), seqs, "each once, in order")
		eventually(t, "the table is empty", func() bool { return rows(t, db) == 0 })
		require.Equal(t, 100, largest)
		require.Less(t, posts, events/100+30)
	})
}

// A page of the table that was read for batches must not lose events when
// the endpoint takes single ones from then on.
func TestDispatcher_AnEndpointThatTakesNoBatchesAnyMoreLosesNothing(t *testing.T) {
	t.Parallel()
	const events = 40
	var now atomic.Pointer[webhooks.Endpoints]
	var mu sync.Mutex
	var seqs []int64
	posts := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			webhooks.Batch
			webhooks.Body
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("a delivery that is none: %v", err)
		}
		list := body.Events
		if body.Data != nil {
			list = []webhooks.Body{body.Body}
		}
		mu.Lock()
		defer mu.Unlock()
		posts++
		if posts == 1 { // the rest goes through the table
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if posts > 2 {
			single := endpoints(t, endpoint("shop", "http://"+r.Host))
			now.Store(&single)
		}
		for _, one := range list {
			event, err := event.Decode(one.Data)
			if err != nil {
				t.Errorf("no event: %v", err)
			}
			seqs = append(seqs, event.Seq)
		}
	}))
	defer receiver.Close()
	all := endpoints(t, strings.Replace(endpoint("shop", receiver.URL), `"events"`, `"batch":10,"events"`, 1))
	now.Store(&all)
	db := syncertest.OpenServer(t)
	p := start(t, webhooks.Config{DB: db, Endpoints: func() webhooks.Endpoints { return *now.Load() }})
	p.submit("spring", 1, events)
	eventually(t, "nothing waits", func() bool { return p.settled.Load() == events && rows(t, db) == 0 })
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, upTo(1, events), seqs, "each once, in order")
}
