package auth

import (
	"context"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"dibs/api/wire"
)

const (
	// guessesPerSecond and guessesAtOnce limit an address' unknown tokens
	// that get 401. More get 429.
	guessesPerSecond = 2
	guessesAtOnce    = 50
	// checksPerCore limits the signatures verified a second, from all
	// senders: about half of the cores, at about 0.1 ms each. A token is
	// verified once, then cached.
	checksPerCore = 5_000
	// checkWait is the longest wait of a token for verification.
	checkWait = 2 * time.Second
	// suspectsMax bounds the remembered addresses. The least recently seen
	// are dropped.
	suspectsMax = 4096
	// reportEvery is the time between two reports for one address and reason.
	reportEvery = time.Minute
	// reportedPerSecond limits the reports of all addresses together.
	reportedPerSecond = 5
)

// reason is why a token was refused. It is a metric's label.
type reason string

const (
	// unknown, or a JWT whose claims or kid are for another service.
	reasonUnknown   reason = "unknown"
	reasonExpired   reason = "expired"   // it was valid
	reasonForged    reason = "forged"    // a JWT with a wrong signature
	reasonForbidden reason = "forbidden" // valid, but not for this
	reasonThrottled reason = "throttled" // too many tokens waited for verification
)

func reasons() []reason {
	return []reason{reasonUnknown, reasonExpired, reasonForged, reasonForbidden, reasonThrottled}
}

// Refusal reports Count refused tokens since the last report.
type Refusal struct {
	Actor   string // of a token that is or was valid
	Address string
	Reason  string
	Count   int
}

// refusals counts and reports refused tokens, and limits the cost of
// addresses that send wrong ones. Its memory is bounded.
type refusals struct {
	log      *slog.Logger
	report   func(context.Context, Refusal)
	clock    func() time.Time
	count    *prometheus.CounterVec
	suspects *lru.Cache[string, *suspect]
	all      *rate.Limiter // of reports
	checks   *rate.Limiter // of signatures
}

type suspect struct {
	guesses *rate.Limiter

	mu         sync.Mutex
	unreported map[reason]*unreportedCount
}

type unreportedCount struct {
	count int
	last  time.Time // time of the last report; zero: none
}

func newRefusals(cfg *Config) *refusals {
	suspects, err := lru.New[string, *suspect](suspectsMax)
	if err != nil { // for a size below 1
		panic(err)
	}
	checks := checksPerCore * runtime.GOMAXPROCS(0)
	r := &refusals{
		log: cfg.Logger, report: cfg.Refused, clock: cfg.Clock, suspects: suspects, all: rate.NewLimiter(reportedPerSecond, reportedPerSecond),
		checks: rate.NewLimiter(rate.Limit(checks), checks),
		count: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_http_tokens_refused_total", Help: "Requests whose token was refused, by reason.",
		}, []string{"reason"}),
	}
	for _, why := range reasons() {
		r.count.WithLabelValues(string(why))
	}
	return r
}

// AddressOf is a request's address without the port. An IPv6 address
// becomes its /64, as one client usually has a whole /64.
func AddressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && !ip.Is4In6() {
		if prefix, err := ip.WithZone("").Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return host
}

func (r *refusals) suspect(address string) *suspect {
	found, ok := r.suspects.Get(address)
	if !ok {
		found = &suspect{
			guesses: rate.NewLimiter(guessesPerSecond, guessesAtOnce), unreported: map[reason]*unreportedCount{},
		}
		if other, ok, _ := r.suspects.PeekOrAdd(address, found); ok {
			found = other
		}
	}
	return found
}

func (r *refusals) admit(ctx context.Context, remote string) *wire.Problem {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	if r.checks.Wait(ctx) == nil {
		return nil
	}
	r.note(ctx, Refusal{Address: AddressOf(remote), Reason: string(reasonThrottled)})
	return &wire.Problem{
		Code: wire.CodeRateLimited, RetryAfter: 1, Rate: wire.NewRate("process", float64(r.checks.Limit()), r.checks.Burst()),
		Detail: "Too many tokens wait to be verified. Send the request again.",
	}
}

// refuse refuses a token whose check was cheap.
func (r *refusals) refuse(ctx context.Context, remote, actor string, why reason) *wire.Problem {
	r.note(ctx, Refusal{Actor: actor, Address: AddressOf(remote), Reason: string(why)})
	return wire.Refuse(wire.CodeUnauthorized)
}

func (r *refusals) guessed(ctx context.Context, remote string) *wire.Problem {
	refused := r.refuse(ctx, remote, "", reasonUnknown)
	now := r.clock()
	s := r.suspect(AddressOf(remote))
	if s.guesses.AllowN(now, 1) {
		return refused
	}
	wait := (1 - s.guesses.TokensAt(now)) / guessesPerSecond
	return &wire.Problem{
		Code: wire.CodeRateLimited, RetryAfter: max(1, int(math.Ceil(wait))), Rate: wire.NewRate("address", guessesPerSecond, guessesAtOnce),
		Detail: "Too many wrong tokens came from this address. Wait as long as Retry-After says.",
	}
}

// note counts a refusal, and reports it unless its address was reported
// recently.
func (r *refusals) note(ctx context.Context, refused Refusal) {
	r.count.WithLabelValues(refused.Reason).Inc()
	refused.Count = r.suspect(refused.Address).due(reason(refused.Reason), r.clock(), r.all)
	if refused.Count == 0 {
		return
	}
	r.log.LogAttrs(ctx, slog.LevelWarn, "tokens were refused", slog.String("address", refused.Address),
		slog.String("reason", refused.Reason), slog.String("actor", refused.Actor), slog.Int("count", refused.Count))
	if r.report != nil {
		r.report(ctx, refused)
	}
}

// due is the number of refusals to report now; 0: none.
func (s *suspect) due(why reason, now time.Time, all *rate.Limiter) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.unreported[why]
	if u == nil {
		u = &unreportedCount{}
		s.unreported[why] = u
	}
	u.count++
	if !u.last.IsZero() && now.Sub(u.last) < reportEvery || !all.AllowN(now, 1) {
		return 0
	}
	n := u.count
	u.count = 0
	u.last = now
	return n
}
