package console

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/internal/seal"
	"dibs/models"
)

//go:embed pages static
var files embed.FS

// Path is the console's path.
const Path = "/console"

var errNotAnswered = errors.New("console: not answered")

// Records reads MySQL's records beside the counters. Errors:
// models.ErrNotFound; any other means that MySQL doesn't answer.
type Records interface {
	Flushes(ctx context.Context, campaignID string, most int) ([]models.StockFlush, error)
	Comparisons(ctx context.Context, campaignID string, most int) ([]models.Reconciliation, error)
	Repairs(ctx context.Context, campaignID string, most int) ([]models.Repair, error)
	Parked(ctx context.Context, campaignID string, most int) ([]models.ParkedEvent, error)
	Waves(ctx context.Context, campaignID string, most int) ([]models.Wave, error)
	Story(ctx context.Context, claimID string) (models.ClaimStory, error)
	ClaimsOfOrder(ctx context.Context, orderID string, most int) ([]models.ClaimRow, error)
	Trouble(ctx context.Context) (models.Trouble, error)
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

// Ended stores, for all API processes, which sessions were signed out.
type Ended interface {
	// EndSession records a session as ended, for a time.
	EndSession(ctx context.Context, id string, keep time.Duration) error
	SessionEnded(ctx context.Context, id string) (bool, error)
	// UseOnce records an id for a time, and reports whether it is the first
	// use.
	UseOnce(ctx context.Context, id string, keep time.Duration) (isFirst bool, err error)
}

// Live streams events: of one campaign, by the id in the path, with its
// past first; or of several.
type Live interface {
	// StockInRedis reads the stock from Redis only.
	StockInRedis(ctx context.Context, campaignID string) (models.Stock, error)
	GetWatchPast(w http.ResponseWriter, r *http.Request) int
	GetWatchSome(w http.ResponseWriter, r *http.Request) int
}

// Who is the signed-in user.
type Who struct {
	Name  string
	Acts  bool      // may change campaigns
	Until time.Time // expiry of the token; zero: never
}

// Config is what a Console needs.
type Config struct {
	API http.Handler // the API's routes
	// why a request's token may not read; nil if it may
	MayRead func(r *http.Request) *wire.Problem
	MayAct  func(r *http.Request) *wire.Problem // why it may not change
	Who     func(r *http.Request) Who           // the token's user; refuses and records nothing
	Open    bool                                // there are no tokens, so no sign-in
	// seals sessions, the same in all API processes; "" generates one for
	// this process
	Secret string
	Live   Live
	Ended  Ended
	// writes a sign-in or sign-out to the audit log
	Note      func(r *http.Request, action string)
	Redis     Redis
	MySQL     func(ctx context.Context) (Pool, error)
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
	cfg     Config
	seal    *seal.Sealer
	links   *seal.Sealer
	pages   map[string]*template.Template
	static  map[string]asset
	mux     *http.ServeMux
	origins *http.CrossOriginProtection
}

// New makes a Console.
func New(cfg Config) (*Console, error) {
	c := &Console{cfg: cfg, origins: http.NewCrossOriginProtection()}
	var err error
	c.seal, err = seal.New(cfg.Secret, "console session")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c.links, err = seal.New(cfg.Secret, linkPurpose)
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

type handler = func(w http.ResponseWriter, r *http.Request, s *session)

func (c *Console) routes() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, h handler) { mux.HandleFunc(pattern, c.signedIn(h)) }
	act := func(pattern string, prepare preparer) {
		get, post := c.acting(prepare)
		handle("GET "+pattern, get)
		handle("POST "+pattern, post)
	}
	mux.HandleFunc("GET /console/static/{name}", c.getStatic)
	mux.HandleFunc("GET /console/sign-in", c.getSignIn)
	mux.HandleFunc("POST /console/sign-in", c.postSignIn)
	handle("POST /console/sign-out", c.postSignOut)
	handle("GET /console", c.getOverview)
	handle("GET /console/{$}", c.getOverview)
	handle("GET /console/health", c.getHealth)
	handle("GET /console/table", c.getTable)
	handle("GET /console/processes", c.getProcesses)
	handle("GET /console/session", func(w http.ResponseWriter, _ *http.Request, _ *session) { w.WriteHeader(http.StatusNoContent) })
	handle("GET /console/watch", func(w http.ResponseWriter, r *http.Request, s *session) {
		c.whileSignedIn(r, s)
		status(w, c.cfg.Live.GetWatchSome(w, r))
	})
	handle("GET /console/campaigns/{id}", c.getCampaign)
	handle("GET /console/campaigns/{id}/claims", c.getClaims)
	handle("GET /console/campaigns/{id}/claims.csv", c.getClaimsCSV)
	handle("GET /console/campaigns/{id}/records", c.getRecords)
	handle("GET /console/campaigns/{id}/watch", func(w http.ResponseWriter, r *http.Request, s *session) {
		c.whileSignedIn(r, s)
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
	if err := c.origins.Check(asBrowsersSay(r)); err != nil {
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

// asBrowsersSay returns the request with Host in the form of an Origin: the
// host of the address bar, if a trusted proxy sends it, in lower case,
// without the default port.
func asBrowsersSay(r *http.Request) *http.Request {
	host := strings.ToLower(cmp.Or(forwarded(r, "X-Forwarded-Host"), r.Host))
	scheme, _, _ := strings.Cut(r.Header.Get("Origin"), "://")
	if port := map[string]string{"http": ":80", "https": ":443"}[scheme]; port != "" {
		host = strings.TrimSuffix(host, port)
	}
	same := *r
	same.Host = host
	return &same
}

// forwarded is the first proxy's value of a header. Package api removes
// values from untrusted peers.
func forwarded(r *http.Request, header string) string {
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}

func status(w http.ResponseWriter, is int) {
	if sw, ours := w.(*wire.StatusWriter); ours {
		sw.Status = is
	}
}

// signedIn accepts a request with a session whose token may read. It passes
// the token on in the Authorization header, for the API.
func (c *Console) signedIn(next handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := c.session(r)
		if s == nil && c.cfg.Open {
			s = newSession("")
		}
		if s == nil {
			c.toSignIn(w, r)
			return
		}
		switch ended, err := c.ended(r.Context(), s); {
		case ended:
			c.setCookie(w, r, "", -1)
			c.toSignIn(w, r)
			return
		case err != nil && !isRead(r): // pages are needed while Redis is unreachable, too
			c.cfg.Logger.WarnContext(r.Context(), "it is not known whether a session of the console was ended; is redis up?", slog.Any("error", err))
			c.refuse(w, r, s, &wire.Problem{
				Code: wire.CodeUnavailable, Detail: "Redis does not answer, so it is not known whether you signed out elsewhere. Nothing was done.",
			})
			return
		}
		if !isRead(r) && !s.allows(r) {
			c.refuse(w, r, s, &wire.Problem{
				Code: wire.CodeForbidden, Detail: "The form is not of this session. Nothing was done. Load the page again and send it once more.",
			})
			return
		}
		r = s.authorize(r)
		if p := c.cfg.MayRead(r); p != nil && p.Code == wire.CodeUnauthorized {
			c.toSignIn(w, r)
			return
		} else if p != nil {
			c.refuse(w, r, s, p)
			return
		}
		s.who = c.cfg.Who(r)
		c.keep(w, r, s)
		next(w, r, s)
	}
}

func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// whileSignedIn ends a stream with its session and its token.
func (c *Console) whileSignedIn(r *http.Request, s *session) {
	caller.Of(r.Context()).Still = func() bool {
		ended, _ := c.ended(r.Context(), s) // as on other pages, an unreachable Redis ends nothing
		return !ended && !s.over(time.Now()) && c.cfg.MayRead(r) == nil
	}
}

// toSignIn redirects to the sign-in page. A script's request is refused
// instead.
func (c *Console) toSignIn(w http.ResponseWriter, r *http.Request) {
	if !isRead(r) || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		wire.Refuse(wire.CodeUnauthorized).Write(w)
		return
	}
	to := ""
	if path := r.URL.EscapedPath(); path != Path && path != Path+"/" {
		to = "?to=" + template.URLQueryEscaper(path)
	}
	http.Redirect(w, r, Path+"/sign-in"+to, http.StatusSeeOther) //nolint:gosec // a path of ours; to is escaped
}
