package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/webhooks"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
)

const (
	hookRate  = 1000   // events a second
	hookAway  = 20_000 // events waiting for a receiver that was down
	hookKey   = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	hookBatch = 10 * time.Millisecond
)

// benchWebhooks measures the delay from event to delivery, alone and beside a
// dead receiver, and how fast a returned receiver catches up.
func benchWebhooks(b *testing.B, s *sheet) {
	st := stores(b)[0]
	s.Facts = []string{st.version(b)}
	side := func(campaigns int, dead bool) (string, func()) {
		name := fmt.Sprintf("p99 at %d events/s of %d campaigns", hookRate, campaigns)
		if dead {
			name += ", beside a receiver that is away"
		}
		return name, func() { s.add(name, "s", hookDelay(b, campaigns, dead).Seconds()) }
	}
	one, ofOne := side(1, false)
	many, ofMany := side(100, false)
	beside, ofBeside := side(100, true)
	const catchUp = "catching up"
	const catchUpBeside = "catching up, beside a receiver that is away"
	s.takeTurns([]func(){
		ofOne, ofMany, ofBeside,
		func() { s.add(catchUp, "events/s", hookCatchUp(b, false)) },
		func() { s.add(catchUpBeside, "events/s", hookCatchUp(b, true)) },
	})
	s.goal(b, one, atMost, 1)
	s.goal(b, many, atMost, 1)
	s.goal(b, catchUp, atLeast, 2000)
	s.ratio(b, catchUpBeside+" / alone", catchUpBeside, catchUp, 0.97)
	for _, name := range []string{one, many, beside} {
		s.note(name + ": from the event's time to the receiver, on this machine, one request an event.")
	}
	s.note("Catching up: what waits in MySQL, of 10 campaigns, is posted in order and deleted.")
}

// hookWorld is a Dispatcher over its own database, one receiver
// that answers and perhaps one that doesn't.
func hookWorld(b *testing.B, dead bool, took func(event.Event)) (db *gorm.DB, d *webhooks.Dispatcher, stop func()) {
	b.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body webhooks.Body
		var event event.Event
		text, err := io.ReadAll(r.Body)
		if err == nil && json.Unmarshal(text, &body) == nil && json.Unmarshal(body.Data, &event) == nil {
			took(event)
		}
	}))
	endpoint := func(name, url string) string {
		return fmt.Sprintf(`{"name":%q,"url":%q,"secrets":[%q],"events":["claim.accepted"]}`, name, url, hookKey)
	}
	list := endpoint("good", server.URL)
	if dead {
		list += "," + endpoint("dead", "http://127.0.0.1:1/")
	}
	all, err := webhooks.Parse([]byte(`{"endpoints":[` + list + `]}`))
	require.NoError(b, err)
	db = syncertest.OpenServer(b)
	d = webhooks.New(webhooks.Config{DB: db, Endpoints: func() webhooks.Endpoints { return all }, Logger: slog.New(slog.DiscardHandler)})
	return db, d, server.Close
}

func hookEvent(campaign, seq int) event.Raw {
	e := event.Event{
		V: event.Version, Type: event.ClaimAccepted, ID: fmt.Sprintf("%d-%d", campaign, seq), CampaignID: fmt.Sprint("c", campaign), UserID: "ada",
		Quantity: 1, Seq: int64(seq), At: models.NewTime(time.Now()),
	}
	payload, _ := json.Marshal(e)
	return event.Raw{Event: e, Payload: payload}
}

// hookDelay is the p99 of the delays.
func hookDelay(b *testing.B, campaigns int, dead bool) time.Duration {
	b.Helper()
	var mu sync.Mutex
	var delays []time.Duration
	_, d, stop := hookWorld(b, dead, func(e event.Event) {
		mu.Lock()
		delays = append(delays, time.Since(e.At.Time))
		mu.Unlock()
	})
	defer stop()
	var settled atomic.Int64
	sent := 0
	require.NoError(b, d.Run(b.Context(), func(ctx context.Context) error {
		tick := time.NewTicker(hookBatch)
		defer tick.Stop()
		for until := time.Now().Add(span(20 * time.Second)); time.Now().Before(until); <-tick.C {
			batch := make([]event.Raw, hookRate*int(hookBatch)/int(time.Second))
			for i := range batch {
				batch[i] = hookEvent(sent%campaigns, sent/campaigns+1)
				sent++
			}
			d.Submit(ctx, batch, func(int, error) { settled.Add(1) })
		}
		require.Eventually(b, func() bool { return int(settled.Load()) == sent }, time.Minute, hookBatch)
		return nil
	}))
	slices.Sort(delays)
	return delays[len(delays)*99/100]
}

// hookCatchUp is the events per second delivered to a returned receiver,
// alone or beside a dead one with as many waiting events.
func hookCatchUp(b *testing.B, dead bool) float64 {
	b.Helper()
	var took atomic.Int64
	done := make(chan struct{})
	n := amount(hookAway)
	db, d, stop := hookWorld(b, dead, func(event.Event) {
		if int(took.Add(1)) == n {
			close(done)
		}
	})
	defer stop()
	rows := make([]stored.WebhookEvent, n)
	if dead {
		rows = make([]stored.WebhookEvent, 2*n)
	}
	for i := range rows {
		endpoint := []string{"good", "dead"}[i/n]
		e := hookEvent(i%10, i/10+1)
		rows[i] = stored.WebhookEvent{
			Endpoint: endpoint, CampaignID: e.CampaignID, No: int64(i + 1), EventID: e.ID, Type: e.Type, At: e.At.Time, Payload: e.Payload, CreatedAt: sqlstore.Now(),
		}
	}
	require.NoError(b, db.CreateInBatches(rows, 500).Error)
	started := time.Now()
	require.NoError(b, d.Run(b.Context(), func(context.Context) error {
		<-done
		return nil
	}))
	return float64(n) / time.Since(started).Seconds()
}
