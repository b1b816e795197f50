package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"dibs/internal/reread"
	"dibs/models"
	"dibs/models/calendar"
)

// ShortestOffLoopback is the least length of a token where other machines
// may guess.
const ShortestOffLoopback = 16

// Tokens are the bearer tokens that a process accepts; "" is none. Without
// any token or JWT, every request may do everything, see Door.Check.
type Tokens struct {
	Admin, Storefront, Viewer             string
	AdminFile, StorefrontFile, ViewerFile string // each contains one token
	// a token per line: name role sha256:<hex> [expires=RFC3339]
	File string
	JWT  JWT
}

func (t Tokens) none() bool {
	t.JWT.MaxAge = 0 // a detail of the other JWT settings
	return t == Tokens{}
}

// SettingError refuses a setting of Tokens.
type SettingError struct {
	Setting string // name of its variable without the prefix
	Err     error
}

// Error reads "ADMIN_TOKEN: …".
func (e *SettingError) Error() string { return e.Setting + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *SettingError) Unwrap() error { return e.Err }

func refuseSetting(setting, format string, args ...any) error {
	return &SettingError{setting, fmt.Errorf(format, args...)}
}

// digest is what is stored of a token. Tokens are found by digest, so the
// timing of a search reveals nothing useful.
type digest [sha256.Size]byte

// single is the only token of a role in the settings.
type single struct{ role, setting, token, path string }

func (t Tokens) singles() []single {
	return []single{
		{
			role: "admin", setting: "ADMIN_TOKEN", token: t.Admin, path: t.AdminFile,
		}, {
			role: "storefront", setting: "STOREFRONT_TOKEN", token: t.Storefront, path: t.StorefrontFile,
		},
		{role: "viewer", setting: "VIEWER_TOKEN", token: t.Viewer, path: t.ViewerFile},
	}
}

func (t Tokens) paths() (paths []string) {
	for _, path := range []string{t.AdminFile, t.StorefrontFile, t.ViewerFile, t.File} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

type table struct {
	grants map[digest]Grant
	listed int // those from Tokens.File
}

// read returns the grants by token, including files. Tokens in clear must
// have at least shortest characters. Errors: *SettingError. If it wraps
// reread.ErrPartly, the grants are complete except for faulty lines.
func (t Tokens) read(shortest int) (all table, err error) {
	all.grants = make(map[digest]Grant)
	for _, s := range t.singles() {
		if err := s.add(all.grants, shortest); err != nil {
			return table{}, err
		}
	}
	if t.File == "" {
		return all, nil
	}
	others := len(all.grants)
	text, err := reread.Text(t.File)
	if err == nil {
		err = addLines(all.grants, text)
	}
	all.listed = len(all.grants) - others
	if err != nil {
		err = refuseSetting("TOKENS_FILE", "%w", err)
	}
	return all, err
}

func (s *single) add(grants map[digest]Grant, shortest int) error {
	token := s.token
	setting := s.setting
	if s.path != "" {
		setting += "_FILE"
		if token != "" {
			return refuseSetting(setting, "goes without %s: one of them holds the token", s.setting)
		}
		text, err := reread.Text(s.path)
		if err != nil {
			return refuseSetting(setting, "%w", err)
		}
		token = strings.TrimSpace(text)
		if token == "" {
			return refuseSetting(setting, "%s is empty", s.path)
		}
	}
	if token == "" {
		return nil
	}
	if err := CheckToken(token); err != nil {
		return refuseSetting(setting, "%w", err)
	}
	if n := utf8.RuneCountInString(token); n < shortest {
		return refuseSetting(setting, "has %d characters, and others than this machine can reach the address: "+
			"it must have %d or more; `dibs token` makes one", n, shortest)
	}
	key := digest(sha256.Sum256([]byte(token)))
	if other, twice := grants[key]; twice {
		return refuseSetting(setting, "is the same token as that of %s: each role needs a token of its own", other.Actor)
	}
	grants[key] = Grant{Actor: s.role, Scopes: roles[s.role]}
	return nil
}

// CheckToken refuses a token that an Authorization header can't carry.
func CheckToken(token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return errors.New("must not hold blanks or control characters: an Authorization header cannot carry them")
	}
	return nil
}

// addLines reads a file of tokens. It skips empty lines and comments with
// #. A faulty line grants nothing, but the others count: otherwise a
// mistake in one line would keep a removed token valid. The error is the
// first fault.
func addLines(grants map[digest]Grant, text string) (first error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		key, grant, err := parseLine(words)
		if _, twice := grants[key]; err == nil && twice {
			err = errors.New("its token is there before")
		}
		switch {
		case err == nil:
			grants[key] = grant
		case first == nil:
			first = fmt.Errorf("%w: line %d: %w", reread.ErrPartly, n, err)
		}
	}
	return first
}

func parseLine(words []string) (key digest, grant Grant, err error) {
	if len(words) < 3 || len(words) > 4 {
		return key, grant, errors.New("must be `name role sha256:<hex> [expires=RFC3339]`; `dibs token` makes one")
	}
	if err := models.CheckUserID(words[0]); err != nil {
		return key, grant, fmt.Errorf("the name: %w", err)
	}
	grant.Actor = words[0]
	grant.Scopes = roles[words[1]]
	if grant.Scopes == 0 {
		return key, grant, errors.New("the second word must be the role: admin, storefront or viewer")
	}
	text, tagged := strings.CutPrefix(words[2], "sha256:")
	sum, err := hex.DecodeString(text)
	if !tagged || err != nil || len(sum) != len(key) {
		return key, grant, errors.New("the third word must be sha256: and 64 hexadecimal digits")
	}
	if len(words) == 4 {
		at, named := strings.CutPrefix(words[3], "expires=")
		grant.Until, err = calendar.ParseTime(at)
		if !named || err != nil {
			return key, grant, errors.New("the fourth word must be expires= and an RFC 3339 time such as 2027-01-31T18:00:00Z")
		}
	}
	return digest(sum), grant, nil
}

// Line is a token's line in the file of tokens.
func Line(name, role, token string, until time.Time) (string, error) {
	sum := sha256.Sum256([]byte(token))
	words := []string{name, role, "sha256:" + hex.EncodeToString(sum[:])}
	if !until.IsZero() {
		words = append(words, "expires="+until.UTC().Format(time.RFC3339))
	}
	line := strings.Join(words, " ")
	_, _, err := parseLine(strings.Fields(line))
	return line, err
}
