package auth

import (
	"context"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"dibs/api/wire"
)

const (
	// wrongPerSecond and wrongAtOnce bound the wrong tokens of an address that are looked at.
	wrongPerSecond = 2
	wrongAtOnce    = 50
	// suspectsMax bounds the addresses that are remembered. Those that were quiet for longest are forgotten first.
	suspectsMax = 4096
	// tellEvery is how often refusals of one address and one reason are told again.
	tellEvery = time.Minute
	// toldPerSecond bounds what is told of all addresses together.
	toldPerSecond = 5
)

// reason is why a token was refused. It is a metric's label.
type reason string

const (
	reasonUnknown   reason = "unknown"   // it is none of ours, or no JWT of the issuer's that is good
	reasonExpired   reason = "expired"   // it was good
	reasonForbidden reason = "forbidden" // it is good, and not for this
	reasonThrottled reason = "throttled" // its address sent too many wrong ones, and it was not looked at
)

// Refusal is tokens that were refused: Count of them, since they were told the last time.
type Refusal struct {
	Actor   string // of a token that is good, or was
	Address string
	Reason  string
	Count   int
}

// refusals counts refused tokens, tells of them, and throttles addresses that send wrong ones. Its memory is bounded.
type refusals struct {
	log      *slog.Logger
	tell     func(context.Context, Refusal)
	clock    func() time.Time
	count    *prometheus.CounterVec
	suspects *lru.Cache[string, *suspect]
	all      *rate.Limiter // of what is told
}

// suspect is an address that sent tokens that were refused.
type suspect struct {
	wrong *rate.Limiter

	mu     sync.Mutex
	untold map[reason]*untold
}

type untold struct {
	count int
	last  time.Time // when it was told; zero: never
}

func newRefusals(cfg *Config) *refusals {
	suspects, err := lru.New[string, *suspect](suspectsMax)
	if err != nil { // of a size below 1
		panic(err)
	}
	return &refusals{
		log: cfg.Logger, tell: cfg.Refused, clock: cfg.Clock, suspects: suspects, all: rate.NewLimiter(toldPerSecond, toldPerSecond),
		count: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "dibs_http_tokens_refused_total", Help: "Requests whose token was refused, by reason.",
		}, []string{"reason"}),
	}
}

// addressOf is where a request comes from, without the port. Whoever has an IPv6 address has a whole /64 of them.
func addressOf(remote string) string {
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
		found = &suspect{wrong: rate.NewLimiter(wrongPerSecond, wrongAtOnce), untold: map[reason]*untold{}}
		if other, ok, _ := r.suspects.PeekOrAdd(address, found); ok {
			found = other
		}
	}
	return found
}

// throttled refuses to look at a token of an address that sent too many wrong ones.
func (r *refusals) throttled(ctx context.Context, address string) *wire.Problem {
	found, ok := r.suspects.Peek(address)
	if !ok || found.wrong.TokensAt(r.clock()) >= 1 {
		return nil
	}
	r.note(ctx, Refusal{Address: address, Reason: string(reasonThrottled)})
	return tooMany(found, r.clock())
}

func tooMany(s *suspect, now time.Time) *wire.Problem {
	wait := (1 - s.wrong.TokensAt(now)) / wrongPerSecond
	return &wire.Problem{
		Code: wire.CodeRateLimited, RetryAfter: max(1, int(math.Ceil(wait))),
		Rate:   wire.NewRate("address", wrongPerSecond, s.wrong.Burst()),
		Detail: "Too many wrong tokens came from this address. Wait as long as Retry-After says.",
	}
}

// wrong is the refusal of a token that is no good.
func (r *refusals) wrong(ctx context.Context, refused Refusal) *wire.Problem {
	r.note(ctx, refused)
	s := r.suspect(refused.Address)
	if now := r.clock(); !s.wrong.AllowN(now, 1) {
		return tooMany(s, now)
	}
	return wire.Refuse(wire.CodeUnauthorized)
}

// note counts a refusal, and tells of it unless this was told of its address a moment ago.
func (r *refusals) note(ctx context.Context, refused Refusal) {
	r.count.WithLabelValues(refused.Reason).Inc()
	if refused.Count = r.suspect(refused.Address).due(reason(refused.Reason), r.clock(), r.all); refused.Count == 0 {
		return
	}
	r.log.LogAttrs(ctx, slog.LevelWarn, "tokens were refused", slog.String("address", refused.Address),
		slog.String("reason", refused.Reason), slog.String("actor", refused.Actor), slog.Int("count", refused.Count))
	if r.tell != nil {
		r.tell(ctx, refused)
	}
}

// due is how many refusals are to be told now; 0 is none.
func (s *suspect) due(why reason, now time.Time, all *rate.Limiter) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.untold[why]
	if u == nil {
		u = &untold{}
		s.untold[why] = u
	}
	u.count++
	if !u.last.IsZero() && now.Sub(u.last) < tellEvery || !all.AllowN(now, 1) {
		return 0
	}
	n := u.count
	u.count, u.last = 0, now
	return n
}
