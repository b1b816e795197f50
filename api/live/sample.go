package live

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"dibs/internal/softstate"
	"dibs/models"
)

// sample reads the watched campaigns and sends their events. Each server
// has half of the time, so a hanging one doesn't make the other seem down.
func (s *Sampler) sample(ctx context.Context, one []string, all bool) {
	now := time.Now()
	// MySQL first, as for the stock: Redis is read later, so it is never
	// behind.
	inMySQL, cancel := context.WithTimeout(ctx, askTimeout/2)
	defer cancel()
	ids := one
	active := []string(nil)
	listed := true
	if all {
		active, listed = s.refreshActive(inMySQL, now)
		ids = append(slices.Clone(one), active...)
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	s.refreshBooks(inMySQL, ids)
	inRedis, cancel := context.WithTimeout(ctx, askTimeout/2)
	defer cancel()
	if s.booksFailed {
		s.addSpread(inRedis, ids)
	}
	lots := lotsOf(ids, s.books)
	seen, err := s.cfg.Redis.Watch(inRedis, lots)
	if err != nil {
		s.failed(err, one)
		return
	}
	frames, events := s.frames(now, ids, byLot(lots, seen))
	s.remember(ids, events)
	s.broadcast(frames, together(frames, active, listed && !s.booksFailed), !s.booksFailed)
}

// lotsOf lists what to read in Redis: the campaigns, and the shards of
// sharded ones.
func lotsOf(ids []string, books map[string]models.CampaignBooks) []string {
	lots := slices.Clone(ids)
	for _, id := range ids {
		for i := range books[id].Shards {
			lots = append(lots, books[id].Shards[i].Campaign.ID)
		}
	}
	return lots
}

func byLot(lots []string, seen []softstate.Watched) map[string]*softstate.Watched {
	all := make(map[string]*softstate.Watched, len(lots))
	for i, id := range lots {
		all[id] = &seen[i]
	}
	return all
}

func problem(server, detail string) []byte {
	return []byte("event: problem\ndata: " + `{"code":"unavailable","server":"` + server + `","detail":"` + detail + `"}` + "\n\n")
}

var (
	//nolint:gochecknoglobals // a constant
	problemRedis = problem("redis", "Redis does not answer. Events go on when it does.")
	//nolint:gochecknoglobals // a constant
	problemMySQL = problem("mysql", "MySQL does not answer. What only MySQL knows is as old as it says, or not known.")
)

func (s *Sampler) frames(now time.Time, ids []string, seen map[string]*softstate.Watched) (frames map[string][]byte, events []Event) {
	maps.DeleteFunc(s.histories, func(id string, _ *history) bool {
		campaignID, _ := models.SplitShardID(id)
		return seen[id] == nil && !slices.Contains(s.kept, campaignID)
	})
	find := func(id string) (*softstate.Watched, *history) {
		h := s.histories[id]
		if h == nil {
			h = &history{}
			s.histories[id] = h
		}
		return seen[id], h
	}
	frames = make(map[string][]byte, len(ids))
	for _, id := range ids {
		e, problem := s.eventOf(now, id, find)
		if e != nil {
			events = append(events, *e)
			problem = e.frame()
		}
		frames[id] = problem
	}
	return frames, events
}

// together is the frame for a watcher of many campaigns: their events, then
// each problem once, so that it is what the page keeps showing. isMySQL is
// whether MySQL answered.
func together(frames map[string][]byte, ids []string, isMySQL bool) []byte {
	all := []byte(": all\n\n") // shows that the sampler runs, even if nothing is active
	isOneAway := false
	for _, id := range ids {
		switch frame := frames[id]; {
		case bytes.Equal(frame, problemRedis):
			isOneAway = true
		case bytes.Equal(frame, problemMySQL):
			isMySQL = false
		default:
			all = append(all, frame...)
		}
	}
	if !isMySQL {
		all = append(all, problemMySQL...)
	}
	if isOneAway {
		all = append(all, problemRedis...)
	}
	return all
}

// lookupFunc returns the sample and the history of a campaign or shard.
type lookupFunc func(id string) (*softstate.Watched, *history)

// eventOf makes a campaign's event, or the problem; neither if no server
// knows the campaign.
func (s *Sampler) eventOf(now time.Time, id string, find lookupFunc) (_ *Event, problem []byte) {
	books, known := s.books[id]
	w, h := find(id)
	var e Event
	switch {
	case len(books.Shards) > 0:
		e = h.aggregateShards(now, w, &books, find)
	case isAway(w):
		return nil, problemRedis
	case known || w.Err == nil:
		e = h.event(now, w, &books)
	case s.booksFailed:
		return nil, problemMySQL
	default:
		return nil, nil
	}
	e.CampaignID = id
	return &e, nil
}

func (h *history) event(now time.Time, w *softstate.Watched, books *models.CampaignBooks) Event {
	e := Event{
		At: models.NewTime(now), Name: books.Campaign.Name, Status: books.Campaign.Status, InRedis: w.Err == nil,
		BooksAsOf: models.NewTime(books.Books.At), FlushMs: books.FlushMs, RefusedPerS: map[string]float64{},
	}
	if w.Err != nil {
		b := &books.Books
		e.Total = books.Campaign.Total
		e.Remaining = b.Remaining
		e.Claimed = b.Claimed
		e.Synced = b.Claimed
		e.Parked = b.ParkedUnits
		e.LostClaims = b.LostClaims
		e.LostUnits = b.LostUnits
		h.at = time.Time{}
		return e
	}
	st := w.State.Stock(&books.Books)
	e.Status = w.State.Status
	e.Total = st.Total
	e.Remaining = st.Remaining
	e.Claimed = st.Claimed
	e.Synced = st.Synced
	e.Backlog = st.Backlog
	e.Parked = st.Parked
	e.LostClaims = st.LostClaims
	e.LostUnits = st.LostUnits
	e.Drift = st.Drift
	e.Low = st.Low
	if books.Books.At.IsZero() { // MySQL was never read: its figures are unknown, not 0
		e.BooksAsOf = models.Time{}
		e.Synced = 0
		e.Backlog = 0
		e.Parked = 0
		e.Drift = 0
	}
	e.First = h.at.IsZero()
	h.addRates(&e, now, w)
	e.BacklogAgeMs = h.backlogAge(now, w.State.Sold, &books.Books).Milliseconds()
	return e
}

// refreshActive periodically lists the active campaigns. While MySQL is
// unreachable, it returns the last list or the campaigns that this process
// serves, and complete is false.
func (s *Sampler) refreshActive(ctx context.Context, now time.Time) (active []string, complete bool) {
	if now.Sub(s.activeAt) < activeEvery && s.active != nil {
		return s.active, true
	}
	active, err := s.cfg.Books.Active(ctx, ActiveMax)
	switch {
	case err == nil:
		slices.Sort(active)
		s.active = active
		s.activeAt = now
		return active, true
	case s.active != nil:
		active = s.active
	case s.cfg.Busy != nil:
		active = s.cfg.Busy(ActiveMax)
	}
	s.log("the active campaigns can't be listed, watchers get those that were active; is mysql up?", err)
	return active, false
}

// refreshBooks reads the counters. While MySQL is unreachable the last ones
// stay. A watcher sees their time.
func (s *Sampler) refreshBooks(ctx context.Context, ids []string) {
	books, err := s.cfg.Books.BooksOfAll(ctx, ids)
	s.booksFailed = err != nil
	if err != nil {
		s.log("the books can't be read, watchers get the last that were; is mysql up?", err)
		return
	}
	s.books = books
}

func (s *Sampler) failed(err error, one []string) {
	if s.ctx.Err() != nil {
		return
	}
	s.log("watched campaigns can't be read; is redis up?", err)
	frames := make(map[string][]byte, len(one))
	for _, id := range one {
		frames[id] = problemRedis
	}
	s.broadcast(frames, problemRedis, true)
}

func (s *Sampler) log(message string, err error) {
	s.logSome.Do(func() {
		s.cfg.Logger.Warn("watchers get less", slog.String("what", message), slog.Any("error", err))
	})
}
