package live

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/models"
)

const (
	// writeTimeout bounds a write to a watcher.
	writeTimeout = 10 * time.Second
	// heartbeat is how often a comment is sent, so that proxies keep the
	// connection, and how often the caller's permission is checked.
	heartbeat = 10 * time.Second
	// findTimeout bounds each server's answer whether a campaign exists.
	findTimeout = time.Second
	// SomeMax is how many campaigns one connection may watch.
	SomeMax = 200
)

// GetWatch is GET /v1/campaigns/{id}/watch.
func (s *Sampler) GetWatch(w http.ResponseWriter, r *http.Request) int {
	id := r.PathValue("id")
	if p := wire.InvalidID("id", models.CheckCampaignID(id)); p != nil {
		return p.Write(w)
	}
	if p := s.find(r.Context(), id); p != nil {
		return p.Write(w)
	}
	return s.stream(w, r, &watcher{ids: []string{id}})
}

// GetWatchPast is GetWatch with the past first, as an event of type past.
// For the console.
func (s *Sampler) GetWatchPast(w http.ResponseWriter, r *http.Request) int {
	id := r.PathValue("id")
	if p := s.find(r.Context(), id); p != nil {
		return p.Write(w)
	}
	return s.stream(w, r, &watcher{ids: []string{id}, isPast: true})
}

// GetWatchAll is GET /v1/watch.
func (s *Sampler) GetWatchAll(w http.ResponseWriter, r *http.Request) int {
	return s.stream(w, r, &watcher{})
}

// GetWatchSome streams the events of up to SomeMax campaigns, those of the
// query parameter ids. For the console.
func (s *Sampler) GetWatchSome(w http.ResponseWriter, r *http.Request) int {
	ids := strings.Split(r.URL.Query().Get("ids"), ",")
	ids = slices.DeleteFunc(ids, func(id string) bool { return models.CheckCampaignID(id) != nil })
	return s.stream(w, r, &watcher{ids: ids[:min(len(ids), SomeMax)], several: true})
}

// find refuses a campaign that doesn't exist. Each server has its own
// timeout.
func (s *Sampler) find(ctx context.Context, id string) *wire.Problem {
	inRedis, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	if seen, err := s.cfg.Redis.Watch(inRedis, []string{id, models.ShardID(id, 1)}); err == nil && (seen[0].Err == nil || seen[1].Err == nil) {
		return nil
	}
	inMySQL, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	books, err := s.cfg.Books.BooksOfAll(inMySQL, []string{id})
	if _, found := books[id]; found {
		return nil
	}
	if err == nil {
		return wire.Refuse(wire.CodeCampaignNotFound)
	}
	s.log("a campaign to watch can't be looked up; are mysql and redis up?", err)
	return wire.Refuse(wire.CodeUnavailable)
}

// Streamed is the status of a request that was answered with a stream.
const Streamed = 0

// stream sends events until the client leaves, loses its permission, or the
// process stops.
func (s *Sampler) stream(w http.ResponseWriter, r *http.Request, watching *watcher) int {
	h := w.Header()
	h["Content-Type"] = []string{"text/event-stream"}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Accel-Buffering"] = []string{"no"} // or nginx would buffer events
	if r.Method == http.MethodHead {
		return http.StatusOK
	}
	who := caller.Of(r.Context())
	watching.actor = who.Actor
	watching, err := s.watch(watching)
	switch {
	case errors.Is(err, errFull):
		return wire.Refuse(wire.CodeTooManyWatchers).Write(w)
	case err != nil:
		return wire.Refuse(wire.CodeUnavailable).Write(w)
	}
	defer s.unwatch(watching)
	control := http.NewResponseController(w)
	// nothing more is read; where it isn't supported the server's timeouts
	// apply
	_ = control.SetReadDeadline(time.Time{})
	frame := []byte("retry: 2000\n\n")
	if watching.isPast {
		frame = append(frame, s.pastOf(watching.ids[0])...)
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := w.Write(frame); err != nil {
			return Streamed
		}
		if err := control.Flush(); err != nil {
			return Streamed
		}
		select {
		case frame = <-watching.frames:
		case <-beat.C:
			if !who.MayGoOn() {
				return Streamed
			}
			frame = []byte(": still here\n\n")
		case <-r.Context().Done():
			return Streamed
		case <-s.ctx.Done():
			return Streamed
		}
	}
}

// DocumentWatch describes GetWatch.
func DocumentWatch(oapi *huma.OpenAPI, op *huma.Operation) {
	op.Parameters = []*huma.Param{wire.IDParam(), {
		Name: "ticket", In: "query", Schema: &huma.Schema{Type: "string"},
		Description: "instead of a token, from POST /v1/watch-tickets for this campaign; once, within a minute",
	}}
	DocumentWatchAll(oapi, op)
}

// DocumentWatchAll describes GetWatchAll.
func DocumentWatchAll(oapi *huma.OpenAPI, op *huma.Operation) {
	wire.DocumentAnswer(op, "200", "Events, until the client leaves", "text/event-stream", wire.SchemaOf[Event](oapi))
}
