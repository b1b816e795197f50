package live

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
	"dibs/models"
)

const (
	// publicEvery is the least time between two reads for the public pages,
	// which also bounds their age under load.
	publicEvery = time.Second
	// publicWait is the age at which a request waits for a new read.
	publicWait = 5 * time.Second
	// publicKeep is how long pages are served while a server is unreachable.
	publicKeep = time.Minute
	// PublicMax bounds the public campaigns: those that changed last.
	PublicMax = 1000
	// fewOf defines "few" for a campaign without low_stock_at: a tenth of
	// the total.
	fewOf = 10
)

type publicCampaign struct {
	ID        string        `json:"id"`
	Name      string        `json:"name,omitempty"`
	Kind      models.Kind   `json:"kind" enum:"coupon,packet"`
	Status    models.Status `json:"status" enum:"open,paused,closed"`
	StartsAt  *models.Time  `json:"starts_at,omitempty"`
	EndsAt    *models.Time  `json:"ends_at,omitempty"`
	Left      string        `json:"left" enum:"many,few,none" doc:"few: no more than low_stock_at, or than a tenth of the total where that is 0"`
	Remaining *int64        `json:"remaining,omitempty" doc:"units, where public is count"`
}

type publicPages struct {
	read  time.Time // when the servers answered
	tried time.Time
	byID  map[string][]byte
}

// publicHeader lets caches keep an answer for a second.
var publicHeader = []string{"public, max-age=1"}

// GetPublic is GET /v1/campaigns/{id}/public. All requests are answered
// from the last read.
func (s *Sampler) GetPublic(w http.ResponseWriter, r *http.Request) int {
	pages := s.publicPages(time.Now())
	if pages.byID == nil || time.Since(pages.read) > publicKeep {
		return wire.Refuse(wire.CodeUnavailable).Write(w)
	}
	body, there := pages.byID[r.PathValue("id")]
	if !there {
		return wire.Refuse(wire.CodeCampaignNotFound).Write(w)
	}
	w.Header()["Content-Type"] = wire.JSONContentType
	w.Header()["Cache-Control"] = publicHeader
	_, _ = w.Write(body) // a disconnected client needs no answer
	return http.StatusOK
}

// publicPages returns the pages of the last read. If they are old, one
// request reads again. Others wait only for the first read, or if the pages
// are older than publicWait.
func (s *Sampler) publicPages(now time.Time) *publicPages {
	last := s.public.Load()
	switch age := now.Sub(last.tried); {
	case age < publicEvery:
		return last
	case age >= publicWait:
		s.readingPublic.Lock()
	case !s.readingPublic.TryLock():
		return last
	}
	defer s.readingPublic.Unlock()
	if now.Sub(s.public.Load().tried) >= publicEvery {
		s.readPublic(now)
	}
	return s.public.Load()
}

// readPublic reads all public campaigns. If MySQL is unreachable, it uses
// the last list. If Redis is, the pages stay.
func (s *Sampler) readPublic(now time.Time) {
	ctx, cancel := context.WithTimeout(s.ctx, askTimeout)
	defer cancel()
	last := s.public.Load()
	pages := &publicPages{read: last.read, tried: now, byID: last.byID}
	defer s.public.Store(pages)
	if err := s.readPublicBooks(ctx); err != nil {
		s.log("public campaigns can't be listed, they are those of before; is mysql up?", err)
	}
	if s.publicBooks == nil {
		return
	}
	ids := slices.Collect(maps.Keys(s.publicBooks))
	lots := lotsOf(ids, s.publicBooks)
	watched, err := s.cfg.Redis.Watch(ctx, lots)
	if err != nil && len(lots) > 0 {
		s.log("what is left of public campaigns can't be read; is redis up?", err)
		return
	}
	pages.read = now
	pages.byID = make(map[string][]byte, len(ids))
	seen := byLot(lots, watched)
	for id, books := range s.publicBooks {
		e := eventOnce(now, seen, id, &books)
		// strings and numbers always marshal
		if body, err := json.Marshal(publicOf(&books.Campaign, &e)); err == nil {
			pages.byID[id] = body
		}
	}
}

func (s *Sampler) readPublicBooks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout/2)
	defer cancel()
	ids, err := s.cfg.Books.Public(ctx, PublicMax)
	if err != nil {
		return err
	}
	books, err := s.cfg.Books.BooksOfAll(ctx, ids)
	if err == nil {
		s.publicBooks = books
	}
	return err
}

func publicOf(c *models.Campaign, e *Event) *publicCampaign {
	p := &publicCampaign{ID: c.ID, Name: c.Name, Kind: c.Kind, Status: c.Status, Left: "many"}
	if c.StartsAt != nil {
		p.StartsAt = new(models.NewTime(*c.StartsAt))
	}
	if c.EndsAt != nil {
		p.EndsAt = new(models.NewTime(*c.EndsAt))
	}
	switch few := c.LowStockAt; {
	case e.Remaining == 0:
		p.Left = "none"
	case few > 0 && e.Remaining <= few, few == 0 && e.Remaining <= e.Total/fewOf:
		p.Left = "few"
	}
	if c.Public == models.PublicCount {
		p.Remaining = &e.Remaining
	}
	return p
}

// DocumentPublic describes GetPublic.
func DocumentPublic(oapi *huma.OpenAPI, op *huma.Operation) {
	op.Parameters = []*huma.Param{wire.IDParam()}
	schema := wire.SchemaOf[publicCampaign](oapi)
	wire.DocumentAnswer(op, "200", "What anybody may read, at most some seconds old", wire.JSONContentType[0], schema)
}
