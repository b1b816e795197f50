package models

import (
	"errors"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Lengths of the ids that outsiders choose.
const (
	// CampaignIDLength is the longest id of a campaign or a packet, in
	// characters of A-Z a-z 0-9 . _ -.
	CampaignIDLength = 64
	// ReasonLength bounds the reasons that MySQL keeps, in characters: the
	// width of the column.
	ReasonLength = 500
	// UserIDLength is the longest id of a user or an order, in printable
	// characters.
	UserIDLength = 128
	// IdempotencyKeyLength is the longest idempotency key, in printable
	// characters.
	IdempotencyKeyLength = 255
)

// ErrID is wrapped by every refusal of an id; the message says what is wrong
// with it.
var ErrID = errors.New("models: bad id")

// CheckCampaignID returns nil, or ErrID wrapped, for the id of a campaign or a
// packet.
func CheckCampaignID(id string) error {
	if id == "" || len(id) > CampaignIDLength {
		return fmt.Errorf("%w: must be 1 to %d characters", ErrID, CampaignIDLength)
	}
	for i := range len(id) {
		if !isCampaignIDByte(id[i]) {
			return fmt.Errorf("%w: only A-Z a-z 0-9 . _ - are allowed", ErrID)
		}
	}
	return nil
}

func isCampaignIDByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// CheckClaimID returns nil, or ErrID wrapped, for the id of a claim. Dibs makes
// these ids, but callers may ask for any.
func CheckClaimID(id string) error { return CheckCampaignID(id) }

// CheckUserID returns nil, or ErrID wrapped, for the id of a user in an event,
// and for other names. It is laxer than UserID: a claim that was answered is
// not dropped over its user's id.
func CheckUserID(id string) error { return checkPrintable(id, UserIDLength) }

// UserID returns the id of a user or an order in the form in which it is kept,
// see visible. Errors: ErrID, wrapped.
func UserID(id string) (string, error) {
	if err := CheckSegment(id); err != nil {
		return "", err
	}
	return visible(id, UserIDLength)
}

// CheckSegment returns nil, or ErrID wrapped, for what stands in paths: clients
// and proxies take two names for something else.
func CheckSegment(id string) error {
	if id == "." || id == ".." {
		return fmt.Errorf("%w: must not be . or .., which no path can carry", ErrID)
	}
	return nil
}

// IdempotencyKey returns a key in the form in which it is compared, see
// visible. Errors: ErrID, wrapped. The caller decides whether a key may be
// missing.
func IdempotencyKey(key string) (string, error) { return visible(key, IdempotencyKeyLength) }

// visible returns what others name a thing by in Unicode's normal form C, so
// that two ways to write a name are one name. Two names that look the same are
// not two names: it refuses characters that cannot be seen, and a blank at
// either end, which is a mistake and is not trimmed silently. Letter case, and
// letters of two scripts that look alike, are the caller's business.
func visible(text string, most int) (string, error) {
	if !isASCII(text) {
		text = norm.NFC.String(text)
	}
	if err := checkPrintable(text, most); err != nil {
		return "", err
	}
	if text[0] == ' ' || text[len(text)-1] == ' ' { // checkPrintable refuses all other blanks
		return "", fmt.Errorf("%w: must not begin or end with a blank", ErrID)
	}
	for _, r := range text {
		if r >= utf8.RuneSelf && isUnseen(r) {
			return "", fmt.Errorf("%w: holds the character %U, which cannot be seen", ErrID, r)
		}
	}
	return text, nil
}

// isUnseen reports whether a printable character cannot be seen: it is of
// Unicode's Default_Ignorable_Code_Point, or a letter or symbol without ink. Of
// the former (DerivedCoreProperties.txt says what it is made of) two properties
// are asked for here. The third, format characters, are not printable.
func isUnseen(r rune) bool {
	switch r {
	case 0x2800, 0x13441, 0x13442, 0x16fe4, 0x1d159: // of braille, hieroglyphs, Khitan and music
		return true
	}
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// checkPrintable counts characters, not bytes. Printable is what
// strconv.IsPrint says: letters, marks, numbers, punctuation, symbols and the
// ASCII space.
func checkPrintable(s string, most int) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%w: is not valid UTF-8", ErrID)
	}
	n := 0
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return fmt.Errorf("%w: holds a character that is not printable", ErrID)
		}
		n++
	}
	if n == 0 || n > most {
		return fmt.Errorf("%w: must be 1 to %d characters", ErrID, most)
	}
	return nil
}
