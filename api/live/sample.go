package live

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"dibs/lua"
	"dibs/models"
)

// sample looks once at the campaigns that are watched and tells their watchers.
func (s *Sampler) sample(ctx context.Context, one []string, all bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	now := time.Now()
	ids := one
	if all {
		s.refreshActive(ctx, now)
		ids = append(slices.Clone(one), s.active...)
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	// MySQL first, as for the stock: Redis, read later, is then never behind it.
	s.refreshBooks(ctx, ids)
	lots := lotsOf(ids, s.books)
	seen, err := s.cfg.Redis.Watch(ctx, lots)
	if err != nil {
		s.failed(err, one)
		return
	}
	s.tell(s.frames(now, ids, byLot(lots, seen)))
}

// lotsOf lists what is looked at in Redis: campaigns, and the shards of those that have several.
func lotsOf(ids []string, books map[string]models.CampaignBooks) []string {
	lots := slices.Clone(ids)
	for _, id := range ids {
		for i := range books[id].Shards {
			lots = append(lots, books[id].Shards[i].Campaign.ID)
		}
	}
	return lots
}

func byLot(lots []string, seen []lua.Watched) map[string]*lua.Watched {
	all := make(map[string]*lua.Watched, len(lots))
	for i, id := range lots {
		all[id] = &seen[i]
	}
	return all
}

// problem tells watchers that Redis does not answer.
const problem = "event: problem\ndata: " +
	`{"code":"unavailable","detail":"Redis does not answer. Events go on when it does."}` + "\n\n"

// frames makes the events: one by one, and those of all active campaigns in one piece.
func (s *Sampler) frames(now time.Time, ids []string, seen map[string]*lua.Watched) (one map[string][]byte, all []byte) {
	before := s.histories
	s.histories = make(map[string]*history, len(seen))
	find := func(id string) (*lua.Watched, *history) {
		h := before[id]
		if h == nil {
			h = &history{}
		}
		s.histories[id] = h
		return seen[id], h
	}
	one = make(map[string][]byte, len(ids))
	for _, id := range ids {
		if frame, err := s.frameOfOne(now, id, find); err == nil { // figures and texts always marshal
			one[id] = frame
		}
	}
	all = []byte(": all\n\n") // says that the sampler lives where nothing is active
	isOneAway := false
	for _, id := range s.active {
		if string(one[id]) == problem {
			isOneAway = true
			continue
		}
		all = append(all, one[id]...)
	}
	if isOneAway {
		all = append(all, problem...) // last, so that it is what stays
	}
	return one, all
}

// finder finds what was seen of a campaign or shard, and its history.
type finder func(id string) (*lua.Watched, *history)

// frameOfOne makes the event of a campaign; nil where neither server says anything of it.
func (s *Sampler) frameOfOne(now time.Time, id string, find finder) ([]byte, error) {
	books, known := s.books[id]
	w, h := find(id)
	var e Event
	switch {
	case len(books.Shards) > 0:
		e = h.spread(now, w, &books, find)
	case isAway(w):
		return []byte(problem), nil
	case known || w.Err == nil:
		e = h.event(now, w, &books)
	default:
		return nil, nil
	}
	e.CampaignID = id
	return e.frame()
}

// event puts together what both servers say.
func (h *history) event(now time.Time, w *lua.Watched, books *models.CampaignBooks) Event {
	e := Event{
		At: models.NewTime(now), Name: books.Campaign.Name, Status: books.Campaign.Status, InRedis: w.Err == nil,
		BooksAsOf: models.NewTime(books.Books.At), FlushMs: books.FlushMs, RefusedPerS: map[string]float64{},
	}
	if w.Err != nil {
		b := &books.Books
		e.Total, e.Remaining, e.Claimed, e.Synced, e.Parked = books.Campaign.Total, b.Remaining, b.Claimed, b.Claimed, b.ParkedUnits
		if books.Campaign.Residency == models.ResidencyLost {
			e.Status = models.StatusFenced
		}
		h.at = time.Time{}
		return e
	}
	st := w.State.Stock(&books.Books)
	e.Status, e.Total, e.Remaining, e.Claimed, e.Synced = w.State.Status, st.Total, st.Remaining, st.Claimed, st.Synced
	e.Backlog, e.Parked, e.Drift, e.Low = st.Backlog, st.Parked, st.Drift, st.Low
	e.AcceptedPerS, e.RefusedPerS = h.rates(now, w)
	e.BacklogAgeMs = h.backlogAge(now, w.State.Seq, &books.Books).Milliseconds()
	return e
}

// refreshActive asks MySQL now and then which campaigns are active. While it is away the last answer holds.
func (s *Sampler) refreshActive(ctx context.Context, now time.Time) {
	if now.Sub(s.activeAt) < activeEvery && s.active != nil {
		return
	}
	active, err := s.cfg.Books.Active(ctx, ActiveMax)
	if err != nil {
		s.log("the active campaigns can't be listed, watchers are told of those that were active; is mysql up?", err)
		return
	}
	slices.Sort(active)
	s.active, s.activeAt = active, now
}

// refreshBooks reads the books. While MySQL is away the last answer holds: it is behind, and a watcher sees since when.
func (s *Sampler) refreshBooks(ctx context.Context, ids []string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout/2) // leaves Redis its time
	defer cancel()
	books, err := s.cfg.Books.BooksOfAll(ctx, ids)
	if err != nil {
		s.log("the books can't be read, watchers are told the last that were; is mysql up?", err)
		return
	}
	s.books = books
}

// failed tells watchers that Redis does not answer.
func (s *Sampler) failed(err error, one []string) {
	if s.ctx.Err() != nil {
		return
	}
	s.log("watched campaigns can't be looked at; is redis up?", err)
	frame := []byte(problem)
	frames := make(map[string][]byte, len(one))
	for _, id := range one {
		frames[id] = frame
	}
	s.tell(frames, frame)
}

func (s *Sampler) log(message string, err error) {
	s.logSome.Do(func() {
		s.cfg.Logger.Warn("watchers are told less", slog.String("what", message), slog.Any("error", err))
	})
}
