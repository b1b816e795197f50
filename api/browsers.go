package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/rs/cors"

	"dibs/api/auth"
	"dibs/api/console"
	"dibs/api/wire"
	"dibs/models"
)

// allowOrigins lets pages of the configured origins call the API and read
// the headers that a client needs.
func allowOrigins(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	allowed := cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete},
		AllowedHeaders: []string{"*"}, // traces and gateways add theirs
		ExposedHeaders: []string{
			"Allow", "ETag", "Idempotent-Replayed", "Idempotent-Replayed-Claims", "Location", "RateLimit", "RateLimit-Policy", "Retry-After",
			"WWW-Authenticate", "X-Request-Id",
		},
		MaxAge: int((10 * time.Minute).Seconds()),
	}).Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			allowed.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) toConsole(w http.ResponseWriter, r *http.Request) int {
	if s.console == nil || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return wire.Refuse(wire.CodeNotFound).Write(w)
	}
	http.Redirect(w, r, console.Path, http.StatusSeeOther)
	return http.StatusSeeOther
}

const (
	// ticketFor is how long a ticket is valid, for one use.
	ticketFor = time.Minute
	// ticketTimeout bounds the check whether a ticket was used.
	ticketTimeout = time.Second
)

const ticketBodyMax = 1 << 10

type ticketBody struct {
	CampaignID string `json:"campaign_id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._-]+$" doc:"the campaign that the ticket is for"`
}

// ticket replaces an Authorization header for a browser's EventSource,
// which can't send one.
type ticket struct {
	ID            string    `json:"id"`
	CampaignID    string    `json:"campaign_id"`
	Authorization string    `json:"authorization"`
	Until         time.Time `json:"until"`
}

type ticketAnswer struct {
	Ticket    string      `json:"ticket" doc:"for the query parameter ticket of the campaign's watch route, once"`
	ExpiresAt models.Time `json:"expires_at"`
}

func (s *Server) postTicket(w http.ResponseWriter, r *http.Request) int {
	var sent ticketBody
	var text bytes.Buffer
	p := wire.ReadBody(r, &text, ticketBodyMax)
	if p == nil {
		p = wire.ReadObject(text.Bytes(), wire.FieldsOf(&sent))
	}
	if p != nil {
		return p.Write(w)
	}
	until := s.cfg.Clock().Add(ticketFor)
	sealed, err := s.tickets.Seal(ticket{
		ID: rand.Text(), CampaignID: sent.CampaignID, Authorization: r.Header.Get("Authorization"), Until: until,
	})
	if err != nil { // strings and times always marshal
		return wire.Refuse(wire.CodeInternal).Write(w)
	}
	body, err := json.Marshal(ticketAnswer{Ticket: sealed, ExpiresAt: models.NewTime(until)})
	if err != nil {
		return wire.Refuse(wire.CodeInternal).Write(w)
	}
	return writeJSON(w, string(body))
}

func documentTicket(oapi *huma.OpenAPI, op *huma.Operation) {
	wire.DocumentBody(op, wire.SchemaOf[ticketBody](oapi))
	wire.DocumentAnswer(op, "200", "A ticket", wire.JSONContentType[0], wire.SchemaOf[ticketAnswer](oapi))
}

// byTicket handles a request with a ticket in its query like the request
// that created the ticket.
func (s *Server) byTicket(path string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		text := query.Get("ticket")
		if text == "" {
			next(w, r)
			return
		}
		t, p := s.useTicket(r, text)
		if p != nil {
			s.serve(path, auth.Open, func(w http.ResponseWriter, _ *http.Request) int { return p.Write(w) })(w, r)
			return
		}
		r = r.Clone(r.Context())
		query.Del("ticket")
		r.URL.RawQuery = query.Encode()
		r.Header.Del("Authorization")
		if t.Authorization != "" {
			r.Header.Set("Authorization", t.Authorization)
		}
		next(w, r)
	}
}

// useTicket opens a ticket and records its use in Redis.
func (s *Server) useTicket(r *http.Request, text string) (t ticket, p *wire.Problem) {
	if !s.tickets.Open(text, &t) || s.cfg.Clock().After(t.Until) {
		return t, &wire.Problem{Code: wire.CodeUnauthorized, Detail: "The ticket is not known here, or older than a minute. Ask for another."}
	}
	if t.CampaignID != r.PathValue("id") {
		return t, &wire.Problem{Code: wire.CodeForbidden, Detail: "The ticket is for another campaign."}
	}
	ctx, cancel := context.WithTimeout(r.Context(), ticketTimeout)
	defer cancel()
	isFirst, err := s.shared.UseOnce(ctx, t.ID, ticketFor)
	switch {
	case err != nil:
		s.logSome.Do(func() {
			s.cfg.Logger.WarnContext(ctx, "a watch ticket can't be checked; is redis up?", slog.Any("error", err))
		})
		return t, wire.Refuse(wire.CodeUnavailable)
	case !isFirst:
		return t, &wire.Problem{Code: wire.CodeUnauthorized, Detail: "The ticket was used before. Ask for another."}
	}
	return t, nil
}
