package auth_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/stretchr/testify/require"

	"dibs/api/auth"
)

const (
	issuer   = "https://id.example"
	audience = "dibs"
)

// issued is an issuer's key with other fields of its JWK.
type issued struct {
	id     string
	alg    jwa.SignatureAlgorithm
	key    any // private
	fields map[string]any
}

func (k issued) jwk(t testing.TB) jwk.Key {
	t.Helper()
	key, err := jwk.Import(k.key)
	require.NoError(t, err)
	if key.KeyType() != jwa.OctetSeq() {
		key, err = key.PublicKey()
		require.NoError(t, err)
	}
	if k.id != "" {
		require.NoError(t, key.Set("kid", k.id))
	}
	for name, value := range k.fields {
		require.NoError(t, key.Set(name, value))
	}
	return key
}

func keySetOf(t testing.TB, keys ...issued) string {
	t.Helper()
	set := jwk.NewSet()
	for _, k := range keys {
		require.NoError(t, set.AddKey(k.jwk(t)))
	}
	text, err := json.Marshal(set)
	require.NoError(t, err)
	return string(text)
}

// token is a JWT that is valid for an hour, changed by claims and header;
// nil removes a claim.
func (k issued) token(t testing.TB, claims, header map[string]any) string {
	t.Helper()
	all := map[string]any{
		"iss": issuer, "aud": []string{"others", audience}, "sub": "ada", "scope": "openid dibs:user", "exp": time.Now().Add(time.Hour).Unix(),
	}
	for name, value := range claims {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	text, err := json.Marshal(all)
	require.NoError(t, err)
	headers := jws.NewHeaders()
	if k.id != "" {
		require.NoError(t, headers.Set("kid", k.id))
	}
	for name, value := range header {
		require.NoError(t, headers.Set(name, value))
	}
	signed, err := jws.Sign(text, jws.WithKey(k.alg, k.key, jws.WithProtectedHeaders(headers)))
	require.NoError(t, err)
	return string(signed)
}

func newES256(t testing.TB, id string) issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return issued{id: id, alg: jwa.ES256(), key: key}
}

func newRSA(t testing.TB, id string, alg jwa.SignatureAlgorithm) issued {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return issued{id: id, alg: alg, key: key}
}

func jwtGate(t *testing.T, keys ...issued) (*auth.Gate, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jwks.json")
	write(t, file, keySetOf(t, keys...))
	return newGate(t, auth.Tokens{JWT: auth.JWT{File: file, Issuer: issuer, Audience: audience}, Viewer: "viewers-own"}), file
}

func TestJWT_EveryGoodAlgorithmIsTaken(t *testing.T) {
	t.Parallel()
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	rs, es := newRSA(t, "rs", jwa.RS256()), newES256(t, "es")
	ps := rs
	ps.alg = jwa.PS384()
	keys := []issued{es, {id: "ed", alg: jwa.EdDSA(), key: edKey}, {id: "p384", alg: jwa.ES384(), key: p384}, rs}
	g, _ := jwtGate(t, keys...)
	for _, k := range append(keys, ps) {
		for range 2 { // verified, then cached
			require.Equal(t, "ada", ask(g, k.token(t, nil, nil), auth.User), k.alg)
		}
	}
	unnamed := es
	unnamed.id = ""
	require.Equal(t, "ada", ask(g, unnamed.token(t, nil, nil), auth.User), "without a key id")
	require.Equal(t, "viewer", ask(g, "viewers-own", auth.Viewer), "tokens of the settings are taken beside")
}

func TestJWT_WhatIsNotGoodIsRefused(t *testing.T) {
	t.Parallel()
	es, other := newES256(t, "es"), newES256(t, "es")
	rs := newRSA(t, "rs", jwa.RS512())
	rs.fields = map[string]any{"alg": "RS256"}
	forOthers := newES256(t, "enc")
	forOthers.fields = map[string]any{"use": "enc"}
	shared := issued{id: "oct", alg: jwa.HS256(), key: []byte("a secret of thirty-two bytes.....")}
	g, _ := jwtGate(t, es, rs, forOthers, shared)
	require.Equal(t, "ada", ask(g, es.token(t, nil, nil), auth.User), "control")
	now := float64(time.Now().Unix()) + 0.25 // RFC 7519: a date may have a fraction
	require.Equal(t, "ada", ask(g, es.token(t, map[string]any{"exp": now + 60, "iat": now, "nbf": now - 60}, nil), auth.User))
	require.Equal(t, "unauthorized", ask(g, es.token(t, map[string]any{"exp": now - 60}, nil), auth.User))

	public, err := json.Marshal(es.jwk(t))
	require.NoError(t, err)
	good := es.token(t, nil, nil)
	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	none := encode([]byte(`{"alg":"none","kid":"es"}`)) + "." + parts[1] + "."
	asHMAC := issued{id: "es", alg: jwa.HS256(), key: public}
	ago, soon := time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour).Unix()
	// Each wrong token has its own address, so that it is checked, not
	// throttled.
	for what, token := range map[string]string{
		"none": none, "none, signed": none + parts[2], "the public key as a secret": asHMAC.token(t, nil, nil), "a shared key of the set": shared.token(t, nil, nil),
		"another's key under the same id":      other.token(t, nil, nil),
		"an algorithm that the key is not for": rs.token(t, nil, nil), "a key for encryption": forOthers.token(t, nil, nil),
		"no key of this id": issued{"x", es.alg, es.key, nil}.token(t, nil, nil), "crit": es.token(t, nil, map[string]any{"crit": []string{"exp"}}),
		"another issuer": es.token(t, map[string]any{"iss": issuer + "/"}, nil), "no issuer": es.token(t, map[string]any{"iss": nil}, nil),
		"another audience": es.token(t, map[string]any{"aud": "others"}, nil), "no audience": es.token(t, map[string]any{"aud": nil}, nil),
		"expired": es.token(t, map[string]any{"exp": ago}, nil), "for ever": es.token(t, map[string]any{"exp": nil}, nil),
		"not yet": es.token(t, map[string]any{"nbf": soon}, nil), "nobody's": es.token(t, map[string]any{"sub": nil}, nil),
		"a user that can't be": es.token(t, map[string]any{"sub": "a\nb"}, nil), "a user with blanks": es.token(t, map[string]any{"sub": " ada"}, nil),
		"changed": parts[0] + "." + encode([]byte(`{"sub":"eve"}`)) + "." + parts[2], "cut": good[:len(good)-2], "two dots": "a.b.c", "dots": "..",
	} {
		require.Equal(t, "unauthorized", ask(g, token, auth.User), what)
	}
}

func TestJWT_ScopesAddUpAndAUserIsBoundToItself(t *testing.T) {
	t.Parallel()
	es := newES256(t, "es")
	g, _ := jwtGate(t, es)
	const claims = auth.Storefront | auth.User
	for scope, want := range map[string][3]string{ // for a claim, a viewer's read, a change
		"dibs:user": {"only ada", "forbidden", "forbidden"}, "dibs:storefront": {"ada", "forbidden", "forbidden"},
		"dibs:user dibs:storefront": {"ada", "forbidden", "forbidden"}, "dibs:viewer": {"forbidden", "ada", "forbidden"},
		"dibs:viewer dibs:user": {"only ada", "ada", "forbidden"}, "openid dibs:admin": {"ada", "ada", "ada"}, "dibs:user dibs:admin": {"ada", "ada", "ada"},
		"": {"forbidden", "forbidden", "forbidden"}, "dibs dibs: dibs:root user admin DIBS:ADMIN dibs:users": {"forbidden", "forbidden", "forbidden"},
	} {
		for i, need := range []auth.Scope{claims, auth.Viewer, auth.Admin} {
			require.Equal(t, want[i], askWho(g, es.token(t, map[string]any{"scope": scope}, nil), need), "%q %d", scope, i)
		}
	}
	require.Equal(t, "only ada", askWho(g, es.token(t, map[string]any{"scope": []string{"openid", "dibs:user"}}, nil), claims), "a list of words")
	require.Equal(t, "forbidden", askWho(g, es.token(t, map[string]any{"scope": 7}, nil), claims))
	for _, scp := range []any{"openid dibs:user", []string{"openid", "dibs:user"}} {
		require.Equal(t, "only ada", askWho(g, es.token(t, map[string]any{"scope": "openid", "scp": scp}, nil), claims), "%v", scp)
	}
	require.Equal(t, "only zo\u00eb", askWho(g, es.token(t, map[string]any{"sub": "zoe\u0308"}, nil), claims), "in normal form C")
}

func TestJWT_IsGoodUntilItEndsAndItsKeyGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, next := newES256(t, "old"), newES256(t, "next")
		g, file := jwtGate(t, old)
		short := old.token(t, map[string]any{"exp": time.Now().Add(time.Minute).Unix()}, nil)
		long := old.token(t, nil, nil)
		require.Equal(t, "ada", ask(g, short, auth.User))
		<-time.After(time.Minute + 29*time.Second)
		require.Equal(t, "ada", ask(g, short, auth.User), "clocks may differ by as much")
		<-time.After(time.Second)
		require.Equal(t, "unauthorized", ask(g, short, auth.User), "though it was verified and remembered")

		write(t, file, keySetOf(t, old, next))
		<-time.After(time.Second)
		require.Equal(t, "ada", ask(g, long, auth.User))
		require.Equal(t, "ada", ask(g, next.token(t, nil, nil), auth.User))
		write(t, file, keySetOf(t, next))
		<-time.After(time.Second)
		require.Equal(t, "unauthorized", ask(g, long, auth.User), "its key is given up")
	})
}

// A file that withdraws all keys must apply. A missing or broken file must
// not, until the keys are too old.
func TestJWT_TheFileOfKeysIsEmptiedOrGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		es := newES256(t, "es")
		file := filepath.Join(t.TempDir(), "jwks.json")
		write(t, file, keySetOf(t, es))
		g := recordingGate(t, auth.Tokens{JWT: auth.JWT{File: file, Issuer: issuer, Audience: audience, MaxAge: time.Hour}})
		token := es.token(t, map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()}, nil)
		require.Equal(t, "ada", ask(g.Gate, token, auth.User))

		write(t, file, `{"keys":[]}`)
		<-time.After(time.Second)
		require.Equal(t, "unauthorized", ask(g.Gate, token, auth.User))
		require.Zero(t, g.value(t, "dibs_credentials_entries", "jwks"))
		require.Zero(t, g.value(t, "dibs_credentials_unreadable_seconds", "jwks"))
		write(t, file, keySetOf(t, es))
		<-time.After(time.Second)
		require.Equal(t, "ada", ask(g.Gate, token, auth.User))
		require.InDelta(t, 1, g.value(t, "dibs_credentials_entries", "jwks"), 0)
		write(t, file, "{")
		<-time.After(time.Second)
		require.Equal(t, "ada", ask(g.Gate, token, auth.User))
		<-time.After(time.Hour - time.Second)
		require.Equal(t, "unavailable", ask(g.Gate, newES256(t, "new").token(t, nil, nil), auth.User), "its key may be in the file")
		require.Equal(t, "ada", ask(g.Gate, token, auth.User))
		require.InDelta(t, 3599, g.value(t, "dibs_credentials_unreadable_seconds", "jwks"), 0.1)
		require.NoError(t, os.Remove(file))
		<-time.After(time.Second)
		require.Equal(t, "unavailable", ask(g.Gate, token, auth.User), "nothing is known of its key any more")
		write(t, file, keySetOf(t, es))
		<-time.After(time.Second)
		require.Equal(t, "ada", ask(g.Gate, token, auth.User))
	})
}

func TestJWT_SettingsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, shared := filepath.Join(dir, "good"), filepath.Join(dir, "shared")
	write(t, good, keySetOf(t, newES256(t, "es")))
	write(t, shared, keySetOf(t, issued{id: "oct", key: []byte("secret")}))
	for _, c := range []struct {
		jwt     auth.JWT
		setting string
	}{
		{auth.JWT{Issuer: issuer, Audience: audience}, "JWKS_URL"}, {auth.JWT{File: good, URL: "https://x", Issuer: issuer, Audience: audience}, "JWKS_FILE"},
		{auth.JWT{File: good, Audience: audience}, "JWT_ISSUER"}, {auth.JWT{File: good, Issuer: issuer}, "JWT_AUDIENCE"},
		{auth.JWT{File: dir, Issuer: issuer, Audience: audience}, "JWKS_FILE"},
		{auth.JWT{File: shared, Issuer: issuer, Audience: audience}, "JWKS_FILE"},
		{auth.JWT{URL: "http://id.example/keys", Issuer: issuer, Audience: audience}, "JWKS_URL"},
	} {
		var refused *auth.SettingError
		require.ErrorAs(t, auth.Door{Addr: "127.0.0.1:80"}.Check(auth.Tokens{JWT: c.jwt}), &refused, "%v", c.jwt)
		require.Equal(t, c.setting, refused.Setting)
		require.NotRegexp(t, "(^| )J(WKS|WT)_", refused.Err.Error(), "settings go by their whole names")
	}
	for _, jwt := range []auth.JWT{{File: good}, {URL: "https://id.example/keys"}, {URL: "http://127.0.0.1:1/keys"}} {
		jwt.Issuer, jwt.Audience = issuer, audience
		require.NoError(t, auth.Door{Addr: ":80", TLS: true}.Check(auth.Tokens{JWT: jwt}), "JWTs alone keep the door")
	}
}
