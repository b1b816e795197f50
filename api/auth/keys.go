package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
)

// keySet is an issuer's public keys. It is immutable: another set is
// another pointer.
type keySet struct {
	all    []key
	others int // entries that can't verify a token
}

type key struct {
	id     string
	algs   []string // allowed algorithms
	public any
}

// algorithms are those allowed for a public key: never none, and never one
// with a shared secret.
func algorithms(public any) []string {
	switch k := public.(type) {
	case *rsa.PublicKey:
		// jwk refuses keys below 2048 bits
		return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return []string{"ES256"}
		case 384:
			return []string{"ES384"}
		case 521:
			return []string{"ES512"}
		}
	case ed25519.PublicKey:
		return []string{"EdDSA", "Ed25519"}
	}
	return nil
}

// fitting returns the keys that may have signed a token with this header.
// Without a key id, all with the algorithm.
func (s *keySet) fitting(alg jwa.SignatureAlgorithm, id string) (fit []key) {
	for _, k := range s.all {
		if (id == "" || id == k.id) && slices.Contains(k.algs, alg.String()) {
			fit = append(fit, k)
		}
	}
	return fit
}

// parseKeys reads a JWK Set. It skips keys that can't verify a token. A set
// without usable keys is valid: the issuer has withdrawn them, so every
// token is refused.
func parseKeys(text []byte) (*keySet, error) {
	set, err := jwk.Parse(text, jwk.WithIgnoreParseError(true))
	if err != nil {
		return nil, fmt.Errorf("it is no JWK Set: %w", err)
	}
	var listed struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &listed); err != nil || listed.Keys == nil {
		return nil, errors.New("it is no JWK Set: it has no keys")
	}
	var keys keySet
	for i := range set.Len() {
		entry, _ := set.Key(i)
		if k, ok := keyOf(entry); ok {
			keys.all = append(keys.all, k)
		}
	}
	keys.others = len(listed.Keys) - len(keys.all)
	return &keys, nil
}

func keyOf(entry jwk.Key) (k key, ok bool) {
	if use, there := entry.KeyUsage(); there && use != "sig" {
		return k, false
	}
	if entry.KeyType() == jwa.OctetSeq() {
		return k, false // a shared secret
	}
	public, err := entry.PublicKey()
	if err != nil || jwk.Export(public, &k.public) != nil {
		return k, false
	}
	k.id, _ = entry.KeyID()
	k.algs = algorithms(k.public)
	if alg, there := entry.Algorithm(); there {
		k.algs = slices.DeleteFunc(k.algs, func(name string) bool { return name != alg.String() })
	}
	return k, len(k.algs) > 0
}
