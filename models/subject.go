package models

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// SubjectsMax bounds the subjects of a claim, and of a campaign's limits,
	// beside the user.
	SubjectsMax = 4
	// SubjectNameLength bounds a subject's name.
	SubjectNameLength = 32
	// SubjectLength bounds a subject's value, in characters.
	SubjectLength = 128
)

// Subjects are what limits count beside the user, such as a device: values by
// name.
type Subjects map[string]string

// IsSubjectName reports whether a subject may have this name.
func IsSubjectName(name string) bool {
	return name != "" && len(name) <= SubjectNameLength && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// Subject returns a subject's value in the form that is stored, see UserID.
// Errors: ErrID, wrapped.
func Subject(name, value string) (string, error) {
	if err := checkSubjectName(name); err != nil {
		return "", err
	}
	return visible(value, SubjectLength)
}

func checkSubjectName(name string) error {
	switch {
	case !IsSubjectName(name):
		return fmt.Errorf("%w: must have names of 1 to %d of a-z and _", ErrID, SubjectNameLength)
	case name == ByUser:
		return fmt.Errorf("%w: must not name the user, which is user_id", ErrID)
	}
	return nil
}

// Names returns the subjects' names, sorted.
func (s Subjects) Names() []string { return slices.Sorted(maps.Keys(s)) }

// JSON is the subjects as a JSON object in a fixed order; "" is none.
func (s Subjects) JSON() string {
	if len(s) == 0 {
		return ""
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(map[string]string(s)) //nolint:errchkjson // texts always encode
	return strings.TrimSuffix(text.String(), "\n")
}

// Value writes the subjects as MySQL stores them.
func (s Subjects) Value() (driver.Value, error) {
	if len(s) == 0 {
		return nil, nil //nolint:nilnil // NULL
	}
	return s.JSON(), nil
}

// Scan reads what Value wrote.
func (s *Subjects) Scan(value any) error {
	*s = nil
	return scanJSON(value, s)
}

// digestOfSubject is the bytes kept of a digest: enough to avoid collisions.
const digestOfSubject = 18

// Hide returns the subjects as they are stored. With a secret, values become
// digests.
func (s Subjects) Hide(secret string) Subjects {
	if secret == "" || len(s) == 0 {
		return s
	}
	hidden := make(Subjects, len(s))
	for name, value := range s {
		hidden[name] = base64.RawURLEncoding.EncodeToString(digest(secret, name+"\x00"+value))
	}
	return hidden
}

// SecretFingerprint distinguishes secrets without revealing them; "" for no
// secret.
func SecretFingerprint(secret string) string {
	if secret == "" {
		return ""
	}
	return hex.EncodeToString(digest(secret, "fingerprint"))
}

func digest(secret, text string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(text)) // never fails
	return mac.Sum(nil)[:digestOfSubject]
}

// Validate checks an event's subjects, see CheckUserID.
func (s Subjects) Validate() error {
	if len(s) > SubjectsMax {
		return fmt.Errorf("%w: must be at most %d", ErrID, SubjectsMax)
	}
	for name, value := range s {
		if err := cmp.Or(checkSubjectName(name), checkPrintable(value, SubjectLength)); err != nil {
			return err
		}
	}
	return nil
}
