package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"dibs/models"
)

const (
	// leeway is how far the clocks of an issuer and of this process may differ.
	leeway = 30 * time.Second
	// verifiedMax bounds the verified tokens that are remembered. Those that were not seen for longest are forgotten first.
	verifiedMax = 50_000
)

// JWT says whose JSON Web Tokens are taken. The zero value takes none.
type JWT struct {
	File, URL        string // of the issuer's public keys, a JWK Set: one of them
	Issuer, Audience string // what iss must be, and aud must hold
}

func (j JWT) check() error {
	switch {
	case j == JWT{}:
		return nil
	case j.File == "" && j.URL == "":
		return refuseSetting("JWKS_URL", "must be set, or DIBS_JWKS_FILE: without keys no JWT can be verified")
	case j.File != "" && j.URL != "":
		return refuseSetting("JWKS_FILE", "goes without DIBS_JWKS_URL: the keys come from one place")
	case j.Issuer == "":
		return refuseSetting("JWT_ISSUER", "is needed beside the keys: tokens of another issuer may be signed with them")
	case j.Audience == "":
		return refuseSetting("JWT_AUDIENCE", "is needed beside the keys: the issuer signs tokens for others, too")
	case j.URL == "":
		_, err := readKeys(j.File)
		return err
	}
	u, err := url.Parse(j.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return refuseSetting("JWKS_URL", "must be an https:// URL, not %q", j.URL)
	}
	if home, err := isHome(u.Hostname() + ":443"); u.Scheme == "http" && (err != nil || !home) {
		return refuseSetting("JWKS_URL", "must be https:// beyond this machine: who can change the answer makes tokens of his own")
	}
	return nil
}

// errKeys says that no key has been read yet, so that nothing is known of a token.
var errKeys = errors.New("auth: the issuer's keys can't be read")

// source gives the issuer's keys. A token may be signed by a key that is new: source looks again when none fits.
type source interface {
	keys(ctx context.Context, fits func(*keySet) bool) (*keySet, error)
}

// verifier verifies JWTs.
type verifier struct {
	cfg    JWT
	source source
	seen   *lru.Cache[digest, verified]
	clock  func() time.Time
}

// verified is a token that was verified, by keys that are still the issuer's.
type verified struct {
	grant Grant
	by    *keySet
}

func newVerifier(cfg JWT, log *slog.Logger, clock func() time.Time) (*verifier, error) {
	if cfg == (JWT{}) {
		return nil, nil //nolint:nilnil // no settings, no verifier
	}
	seen, err := lru.New[digest, verified](verifiedMax)
	if err != nil { // of a size below 1
		panic(err)
	}
	v := &verifier{cfg: cfg, seen: seen, clock: clock}
	if cfg.File != "" {
		v.source, err = newKeyFile(cfg.File, log)
	} else {
		v.source = newKeyURL(cfg.URL, log)
	}
	return v, err
}

// isJWT tells whether a token has the form of a signed JWT.
func isJWT(token string) bool { return strings.Count(token, ".") == 2 }

// known is what a token that was verified before is good for, as long as the issuer has the keys that it had then.
func (v *verifier) known(ctx context.Context, token string) (Grant, bool) {
	found, ok := v.seen.Get(sha256.Sum256([]byte(token)))
	if !ok {
		return Grant{}, false
	}
	now, err := v.source.keys(ctx, func(*keySet) bool { return true })
	return found.grant, err == nil && now == found.by && v.clock().Before(found.grant.Until)
}

// verify is what a token is good for. Errors: errKeys; any other says that it is no good.
func (v *verifier) verify(ctx context.Context, token string) (Grant, error) {
	var by *keySet
	provider := jws.KeyProviderFunc(func(ctx context.Context, sink jws.KeySink, sig *jws.Signature, _ *jws.Message) (err error) {
		header := sig.ProtectedHeaders()
		if critical, there := header.Critical(); there {
			return fmt.Errorf("auth: the token asks for %v, which is not known here", critical)
		}
		alg, _ := header.Algorithm()
		id, _ := header.KeyID()
		by, err = v.source.keys(ctx, func(s *keySet) bool { return len(s.fitting(alg, id)) > 0 })
		if err != nil {
			return err
		}
		for _, k := range by.fitting(alg, id) {
			sink.Key(alg, k.public)
		}
		return nil
	})
	read, err := jwt.Parse([]byte(token), jwt.WithContext(ctx), jwt.WithKeyProvider(provider), jwt.WithIssuer(v.cfg.Issuer),
		jwt.WithAudience(v.cfg.Audience), jwt.WithRequiredClaim(jwt.ExpirationKey), jwt.WithAcceptableSkew(leeway),
		jwt.WithClock(jwt.ClockFunc(v.clock)))
	if err != nil {
		return Grant{}, err //nolint:wrapcheck // the log says whose token
	}
	grant, err := grantOf(read)
	if err == nil {
		v.seen.Add(sha256.Sum256([]byte(token)), verified{grant, by})
	}
	return grant, err
}

// isExpired tells whether a token was good before.
func isExpired(err error) bool { return errors.Is(err, jwt.TokenExpiredError()) }

func grantOf(token jwt.Token) (Grant, error) {
	sub, _ := token.Subject()
	sub, err := models.UserID(sub)
	if err != nil {
		return Grant{}, fmt.Errorf("auth: the token's sub: %w", err)
	}
	until, _ := token.Expiration()
	var scope any
	_ = token.Get("scope", &scope) // none is no scope
	grant := Grant{Actor: sub, Until: until.Add(leeway)}
	switch scope := scope.(type) {
	case string:
		grant.Scopes = scopesOf(scope)
	case []any: // as some issuers write it
		for _, one := range scope {
			word, _ := one.(string)
			grant.Scopes |= scopesOf(word)
		}
	}
	return grant, nil
}
