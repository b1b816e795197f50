package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"dibs/internal/address"
	"dibs/models"
)

const (
	// leeway is the tolerated difference between an issuer's clock and ours.
	leeway = 30 * time.Second
	// verifiedMax bounds the cached verified tokens. The least recently
	// used are dropped.
	verifiedMax = 50_000
)

// JWT selects the JSON Web Tokens to accept. The zero value accepts none.
type JWT struct {
	File, URL        string // of the issuer's public keys, a JWK Set; set only one
	Issuer, Audience string // required iss, and required member of aud
	// MaxAge is how long keys are used that can't be reread; 0 is
	// DefaultKeysMaxAge.
	MaxAge time.Duration
}

// DefaultKeysMaxAge is the default of JWT.MaxAge.
const DefaultKeysMaxAge = 24 * time.Hour

func (j JWT) none() bool { return j.File == "" && j.URL == "" && j.Issuer == "" && j.Audience == "" }

func (j JWT) check() error {
	switch {
	case j.none():
		return nil
	case j.File == "" && j.URL == "":
		return refuseSetting("JWKS_URL", "must be set, or DIBS_JWKS_FILE: without keys no JWT can be verified")
	case j.File != "" && j.URL != "":
		return refuseSetting("JWKS_FILE", "goes without DIBS_JWKS_URL: the keys have one source")
	case j.Issuer == "":
		return refuseSetting("JWT_ISSUER", "is needed beside the keys: tokens of another issuer may be signed with them")
	case j.Audience == "":
		return refuseSetting("JWT_AUDIENCE", "is needed beside the keys: the issuer signs tokens for others, too")
	case j.URL == "":
		return j.checkFile()
	}
	if err := address.CheckHTTP(j.URL); err != nil {
		return refuseSetting("JWKS_URL", "%w", err)
	}
	u, err := url.Parse(j.URL)
	if err != nil {
		// the parser's message may quote a password
		return refuseSetting("JWKS_URL", "must be an https:// URL")
	}
	if home, err := isHome(u.Hostname() + ":443"); u.Scheme == "http" && (err != nil || !home) {
		return refuseSetting("JWKS_URL", "must be https:// beyond this machine: who can change the answer makes tokens of his own")
	}
	return nil
}

// checkFile refuses a file without a usable key, except an empty set, which
// withdraws all keys.
func (j JWT) checkFile() error {
	keys, err := readKeys(j.File)
	if err == nil && len(keys.all) == 0 && keys.others > 0 {
		err = refuseSetting("JWKS_FILE", "%s holds no public key for signatures of RSA (2048 bits or more), P-256, P-384, P-521 or Ed25519",
			j.File)
	}
	return err
}

// errKeys means that no key was ever read, or none for too long, or that one
// may be new while none can be read, so tokens can't be judged.
var errKeys = errors.New("auth: the issuer's keys can't be read")

type source interface {
	// keys returns the valid keys. If none fits they are reread: a token
	// may be signed by a new key.
	keys(ctx context.Context, fits func(*keySet) bool) (*keySet, error)
	// state is the number of valid keys, and for how long rereading has
	// failed. It may start a read without waiting for it.
	state() (entries int, failing time.Duration)
}

type verifier struct {
	cfg    JWT
	source source
	seen   *lru.Cache[digest, verified]
	clock  func() time.Time
}

// verified is a token that was verified by keys that the issuer still has.
type verified struct {
	grant Grant
	by    *keySet
}

func newVerifier(cfg JWT, log *slog.Logger, clock func() time.Time) (*verifier, error) {
	if cfg.none() {
		return nil, nil //nolint:nilnil // no settings, no verifier
	}
	seen, err := lru.New[digest, verified](verifiedMax)
	if err != nil { // for a size below 1
		panic(err)
	}
	v := &verifier{cfg: cfg, seen: seen, clock: clock}
	maxAge := cmp.Or(cfg.MaxAge, DefaultKeysMaxAge)
	if cfg.File != "" {
		v.source, err = newKeyFile(cfg.File, maxAge, log)
	} else {
		v.source = newKeyURL(cfg.URL, maxAge, log)
	}
	return v, err
}

func isJWT(token string) bool { return strings.Count(token, ".") == 2 }

// known is the grant of a token that was verified before, if the issuer's
// keys haven't changed since.
func (v *verifier) known(ctx context.Context, token string) (Grant, bool) {
	found, ok := v.seen.Get(sha256.Sum256([]byte(token)))
	if !ok {
		return Grant{}, false
	}
	now, err := v.source.keys(ctx, func(*keySet) bool { return true })
	return found.grant, err == nil && now == found.by && v.clock().Before(found.grant.Until)
}

// unverified is a JWT with good claims whose signature isn't verified yet.
type unverified struct {
	claims  jwt.Token
	payload []byte
	by      *keySet
	keys    []key // those that fit its header
	alg     jwa.SignatureAlgorithm
}

// read does the cheap checks: the claims, and whether the issuer has a key
// that fits the header. Errors: errKeys; any other means a bad token, see
// isExpired.
func (v *verifier) read(ctx context.Context, token string) (*unverified, error) {
	message, err := jws.Parse([]byte(token), jws.WithCompact())
	if err != nil {
		return nil, fmt.Errorf("auth: the token: %w", err)
	}
	u := &unverified{claims: jwt.New(), payload: message.Payload()}
	if err := json.Unmarshal(u.payload, u.claims); err != nil {
		return nil, fmt.Errorf("auth: the token's claims: %w", err)
	}
	err = jwt.Validate(u.claims, jwt.WithIssuer(v.cfg.Issuer), jwt.WithAudience(v.cfg.Audience), jwt.WithRequiredClaim(jwt.ExpirationKey),
		jwt.WithAcceptableSkew(leeway), jwt.WithClock(jwt.ClockFunc(v.clock)))
	if err != nil {
		return nil, fmt.Errorf("auth: the token's claims: %w", err)
	}
	header := message.Signatures()[0].ProtectedHeaders()
	if critical, there := header.Critical(); there {
		return nil, fmt.Errorf("auth: the token asks for %v, which is not known here", critical)
	}
	u.alg, _ = header.Algorithm()
	id, _ := header.KeyID()
	u.by, err = v.source.keys(ctx, func(s *keySet) bool { return len(s.fitting(u.alg, id)) > 0 })
	if err != nil {
		return nil, err
	}
	u.keys = u.by.fitting(u.alg, id)
	if len(u.keys) == 0 {
		return nil, errors.New("auth: the issuer has no key of the token's kid and alg")
	}
	return u, nil
}

// errSignature means that no fitting key has signed the token.
var errSignature = errors.New("auth: the token's signature is wrong")

// verify verifies the signature and returns the grant. Errors:
// errSignature; any other is about the claims.
func (v *verifier) verify(token string, u *unverified) (Grant, error) {
	provider := jws.KeyProviderFunc(func(_ context.Context, sink jws.KeySink, _ *jws.Signature, _ *jws.Message) error {
		for _, k := range u.keys {
			sink.Key(u.alg, k.public)
		}
		return nil
	})
	signed, err := jws.Verify([]byte(token), jws.WithKeyProvider(provider), jws.WithCompact())
	if err != nil || !bytes.Equal(signed, u.payload) {
		return Grant{}, errSignature
	}
	grant, err := grantOf(u.claims)
	if err == nil {
		v.seen.Add(sha256.Sum256([]byte(token)), verified{grant, u.by})
	}
	return grant, err
}

func isExpired(err error) bool { return errors.Is(err, jwt.TokenExpiredError()) }

func grantOf(token jwt.Token) (Grant, error) {
	sub, _ := token.Subject()
	sub, err := models.UserID(sub)
	if err != nil {
		return Grant{}, fmt.Errorf("auth: the token's sub: %w", err)
	}
	until, _ := token.Expiration()
	grant := Grant{Actor: sub, Until: until.Add(leeway)}
	for _, claim := range []string{"scope", "scp"} { // the second is used by Okta and Microsoft
		var scope any
		_ = token.Get(claim, &scope) // without the claim there is no scope
		switch scope := scope.(type) {
		case string:
			grant.Scopes |= scopesOf(scope)
		case []any: // some issuers write a list
			for _, one := range scope {
				word, _ := one.(string)
				grant.Scopes |= scopesOf(word)
			}
		}
	}
	return grant, nil
}
