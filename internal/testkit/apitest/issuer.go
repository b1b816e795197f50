package apitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
	"github.com/stretchr/testify/require"

	"dibs/api/auth"
)

// Issuer returns a function that makes JWTs, and the setting
// that accepts them.
func Issuer(t testing.TB) (takes auth.JWT, token func(sub, scope string) string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	public, err := jwk.Import(key.Public())
	require.NoError(t, err)
	set := jwk.NewSet()
	require.NoError(t, set.AddKey(public))
	text, err := json.Marshal(set)
	require.NoError(t, err)
	takes = auth.JWT{File: filepath.Join(t.TempDir(), "jwks.json"), Issuer: "https://id.example", Audience: "dibs"}
	require.NoError(t, os.WriteFile(takes.File, text, 0o600))
	return takes, func(sub, scope string) string {
		made, err := jwt.NewBuilder().Issuer(takes.Issuer).Audience([]string{takes.Audience}).Subject(sub).Claim("scope", scope).
			Expiration(time.Now().Add(time.Hour)).Build()
		require.NoError(t, err)
		signed, err := jwt.Sign(made, jwt.WithKey(jwa.ES256(), key))
		require.NoError(t, err)
		return string(signed)
	}
}
