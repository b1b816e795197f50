package claimed_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/lua"
	"dibs/models"
)

// slowStreams is a stream whose reads wait at a gate, after they were made.
type slowStreams struct {
	*apitest.Fake

	mu      sync.Mutex
	entries []lua.Entry
	reads   int
	reading chan struct{} // gets a word from each read
	gate    chan struct{} // lets one go on
}

func (s *slowStreams) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := uint64(len(s.entries) + 1)
	s.entries = append(s.entries, lua.Entry{ID: lua.EntryID{Ms: 1, Seq: seq}, Payload: fmt.Sprintf(
		`{"v":1,"type":"claim.accepted","id":%q,"campaign_id":"c","user_id":"u","quantity":1,"seq":%d,"epoch":1,"at":"2027-03-14T15:09:26.535Z"}`, id, seq)})
}

func (s *slowStreams) Entries(_ context.Context, _ int, from lua.EntryID, _ int) ([]lua.Entry, error) {
	s.mu.Lock()
	s.reads++
	var page []lua.Entry
	for _, e := range s.entries {
		if !e.ID.Less(from) {
			page = append(page, e)
		}
	}
	s.mu.Unlock()
	s.reading <- struct{}{}
	<-s.gate
	return page, nil
}

// A look-up that comes while a refresh runs must not get its result: the claim may have come after that refresh had read the stream.
func TestUnsynced_WhoComesDuringARefreshGetsTheNextOneAndSharesIt(t *testing.T) {
	t.Parallel()
	room := apitest.NewFake(apitest.Coupon("c", 5))
	s := &slowStreams{Fake: room, reading: make(chan struct{}), gate: make(chan struct{})}
	deps := room.Deps()
	deps.Streams = s
	server, err := api.New(api.Config{}, deps)
	require.NoError(t, err)
	h := apitest.AtHome(server.Handler())
	s.add("early")
	var wg sync.WaitGroup
	defer func() { apitest.Wait(t, wg.Wait) }()
	wg.Go(func() { require.Equal(t, 200, statusOf(h, "early")) })
	apitest.Receive(t, s.reading) // the first refresh has read
	s.add("late")
	const askers = 50
	codes := make(chan int, askers)
	for range askers {
		wg.Go(func() { codes <- statusOf(h, "late") })
	}
	require.Eventually(t, func() bool { return room.Looked.Load() == 1+askers }, time.Minute, time.Millisecond)
	apitest.Send(t, s.gate, struct{}{})
	for answered := 0; answered < askers; {
		select {
		case <-s.reading:
			apitest.Send(t, s.gate, struct{}{})
		case code := <-codes:
			require.Equal(t, 200, code)
			answered++
		case <-time.After(30 * time.Second):
			require.FailNow(t, "a look-up is not answered")
		}
	}
	require.Less(t, s.reads, askers/2, "they shared refreshes")
}

func TestPlacesAreNewestFirst(t *testing.T) {
	t.Parallel()
	at := func(ms int64, id string) models.ClaimPlace {
		return models.ClaimPlace{ClaimedAt: models.TimeFromMs(ms).Time, ID: id}
	}
	places := []models.ClaimPlace{at(3, "a"), at(2, "c"), at(2, "b"), at(1, "z")}
	for i, p := range places {
		for j, o := range places {
			require.Equal(t, i-j < 0, p.Compare(o) < 0)
			require.Equal(t, i == j, p.Compare(o) == 0)
		}
	}
}
