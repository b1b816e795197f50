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
	// SubjectsMax is the most subjects of a claim, and of a campaign's limits,
	// beside the user.
	SubjectsMax = 4
	// SubjectNameLength is the longest name of a subject.
	SubjectNameLength = 32
	// SubjectLength is the longest value of a subject, in characters.
	SubjectLength = 128
)

// Subjects are what limits count a claim under beside its user, such as a
// device: values by name.
type Subjects map[string]string

// IsSubjectName reports whether a limit may be by this name.
func IsSubjectName(name string) bool {
	return name != "" && len(name) <= SubjectNameLength && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// Subject returns the value of a subject of a claim in the form in which it is
// kept, see UserID. Errors: ErrID, wrapped.
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

// Names are the names of the subjects, sorted.
func (s Subjects) Names() []string { return slices.Sorted(maps.Keys(s)) }

// JSON is the subjects as a JSON object, the same for the same subjects; "" is
// none.
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

// Value writes the subjects as MySQL keeps them.
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

// digestOfSubject is how many bytes of a digest are kept: enough that no two
// values meet.
const digestOfSubject = 18

// Hide returns the subjects as they are stored: with a secret their values are
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

// SecretFingerprint tells secrets apart without showing them; "" is of no
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

// validate checks the subjects of an event, see CheckUserID.
func (s Subjects) validate() error {
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
