// Package seal makes encrypted texts that only processes with the same secret
// can make and read: cookies and tickets that contain their own data.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// Sealer seals values for one purpose. Values of another purpose
// can't be opened.
type Sealer struct{ aead cipher.AEAD }

// New makes a Sealer. Without a secret it makes one known only
// to this process.
func New(secret, purpose string) (*Sealer, error) {
	if secret == "" {
		secret = rand.Text()
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "dibs "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return &Sealer{aead}, nil
}

// Seal returns a value as URL-safe text. The value must marshal to JSON.
func (s *Sealer) Seal(v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, nil)), nil //nolint:gosec // NewGCMWithRandomNonce draws it
}

// Open decodes a sealed text into v, and reports whether it was
// sealed with the same secret and purpose.
func (s *Sealer) Open(text string, v any) bool {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	plain, err := s.aead.Open(nil, nil, sealed, nil)
	return err == nil && json.Unmarshal(plain, v) == nil
}
