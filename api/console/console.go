package console

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"

	"dibs/api/console/health"
	"dibs/api/console/signin"
	"dibs/api/wire"
	"dibs/models"
	"dibs/models/stored"
)

//go:embed pages static
var files embed.FS

// Path is the console's path.
const Path = signin.Path

var errNotAnswered = errors.New("console: not answered")

// Records reads MySQL's records beside the counters. Errors:
// models.ErrNotFound; any other means that MySQL doesn't answer.
type Records interface {
	Flushes(ctx context.Context, campaignID string, most int) ([]stored.StockFlush, error)
	Comparisons(ctx context.Context, campaignID string, most int) ([]stored.Reconciliation, error)
	Repairs(ctx context.Context, campaignID string, most int) ([]stored.Repair, error)
	Parked(ctx context.Context, campaignID string, most int) ([]stored.ParkedEvent, error)
	Waves(ctx context.Context, campaignID string, most int) ([]stored.Wave, error)
	Story(ctx context.Context, claimID string) (stored.ClaimStory, error)
	ClaimsOfOrder(ctx context.Context, orderID string, most int) ([]stored.ClaimRow, error)
	Webhooks(ctx context.Context) ([]models.WebhookLag, error)
}

// Verdict is the result of a comparison or a repair, in words.
type Verdict struct {
	Agrees bool
	Lines  []string
}

// Books compares and repairs a campaign's counters and rows.
type Books interface {
	Compare(ctx context.Context, campaignID string) (Verdict, error)
	// Repair never gives up an answered claim.
	Repair(ctx context.Context, campaignID string) (Verdict, error)
}

// Live streams events: of one campaign, by the id in the path, with its
// past first; or of several.
type Live interface {
	// StockInRedis reads the stock from Redis only.
	StockInRedis(ctx context.Context, campaignID string) (models.Stock, error)
	GetWatchPast(w http.ResponseWriter, r *http.Request) int
	GetWatchSome(w http.ResponseWriter, r *http.Request) int
}

// Config is what a Console needs.
type Config struct {
	API       http.Handler // the API's routes
	SignIn    signin.Config
	MayAct    func(r *http.Request) *wire.Problem // why a request's token may not change; nil if it may
	Live      Live
	Health    health.Sources
	Campaigns Campaigns
	Busy      func(most int) []string // the campaigns that this process serves
	Records   Records
	Books     Books
	Parked    ParkedMessages
	Settings  []Setting
	Version   string
	Logger    *slog.Logger
}

// Console serves the pages.
type Console struct {
	cfg    Config
	gate   *signin.Gate
	pages  map[string]*template.Template
	static map[string]asset
	mux    *http.ServeMux
}

// New makes a Console.
func New(cfg Config) (*Console, error) {
	c := &Console{cfg: cfg}
	var err error
	c.gate, err = signin.New(cfg.SignIn, signin.Pages{SignIn: c.showSignIn, Refuse: c.refuse})
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c.static, err = readStatic()
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c.pages, err = c.parsePages()
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c.mux = c.routes()
	return c, nil
}

func (c *Console) routes() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, h signin.Handler) { mux.HandleFunc(pattern, c.gate.SignedIn(h)) }
	act := func(pattern string, prepare preparer) {
		get, post := c.acting(prepare)
		handle("GET "+pattern, get)
		handle("POST "+pattern, post)
	}
	mux.HandleFunc("GET /console/static/{name}", c.getStatic)
	mux.HandleFunc("GET /console/sign-in", c.gate.GetSignIn)
	mux.HandleFunc("POST /console/sign-in", c.gate.PostSignIn)
	handle("POST /console/sign-out", c.gate.PostSignOut)
	handle("GET /console", c.getOverview)
	handle("GET /console/{$}", c.getOverview)
	handle("GET /console/health", c.getHealth)
	handle("GET /console/table", c.getTable)
	handle("GET /console/processes", c.getProcesses)
	handle("GET /console/session", func(w http.ResponseWriter, _ *http.Request, _ *signin.Session) { w.WriteHeader(http.StatusNoContent) })
	handle("GET /console/watch", func(w http.ResponseWriter, r *http.Request, s *signin.Session) {
		c.gate.WhileSignedIn(r, s)
		status(w, c.cfg.Live.GetWatchSome(w, r))
	})
	handle("GET /console/campaigns/{id}", c.getCampaign)
	handle("GET /console/campaigns/{id}/claims", c.getClaims)
	handle("GET /console/campaigns/{id}/claims.csv", c.getClaimsCSV)
	handle("GET /console/campaigns/{id}/records", c.getRecords)
	handle("GET /console/campaigns/{id}/watch", func(w http.ResponseWriter, r *http.Request, s *signin.Session) {
		c.gate.WhileSignedIn(r, s)
		status(w, c.cfg.Live.GetWatchPast(w, r))
	})
	act("/console/campaigns/{id}/{verb}", c.prepareCampaign)
	act("/console/claims/{id}/{verb}", c.prepareClaim)
	act("/console/parked/{group}/{verb}", c.prepareParked)
	handle("GET /console/new", c.forActors(c.getNew))
	handle("POST /console/new", c.forActors(c.postNew))
	handle("GET /console/find", c.getFind)
	handle("GET /console/claims/{id}", c.getClaim)
	handle("GET /console/trouble", c.getTrouble)
	handle("GET /console/audit", c.getAudit)
	return mux
}

// Serve answers a request below Path and returns the status.
func (c *Console) Serve(w http.ResponseWriter, r *http.Request) int {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	sw := &wire.StatusWriter{ResponseWriter: w, Status: http.StatusOK}
	if signin.IsForeign(r) {
		c.refuse(sw, r, nil, &wire.Problem{Code: wire.CodeForbidden, Detail: "A page of another site sent this. Nothing was done."})
		return sw.Status
	}
	if _, pattern := c.mux.Handler(r); pattern == "" {
		c.refuse(sw, r, nil, wire.Refuse(wire.CodeNotFound))
		return sw.Status
	}
	c.mux.ServeHTTP(sw, r)
	return sw.Status
}

func status(w http.ResponseWriter, is int) {
	if sw, ours := w.(*wire.StatusWriter); ours {
		sw.Status = is
	}
}
