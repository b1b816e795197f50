package models

import (
	"errors"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Lengths of ids that come from outside.
const (
	// CampaignIDLength bounds the id of a campaign or a packet, in characters
	// of A-Z a-z 0-9 . _ -.
	CampaignIDLength = 64
	// ReasonLength bounds reasons in MySQL, in characters: the column's
	// width.
	ReasonLength = 500
	// UserIDLength bounds the id of a user or an order, in printable
	// characters.
	UserIDLength = 128
	// IdempotencyKeyLength bounds an idempotency key, in printable
	// characters.
	IdempotencyKeyLength = 255
)

// ErrID is wrapped by every refusal of an id. The message names the fault.
var ErrID = errors.New("models: bad id")

// CheckCampaignID checks the id of a campaign or a packet. Errors: ErrID,
// wrapped.
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

// CheckClaimID checks the id of a claim. Dibs makes these ids, but a request
// may hold any text. Errors: ErrID, wrapped.
func CheckClaimID(id string) error { return CheckCampaignID(id) }

// CheckUserID checks a user's id in an event, and other names. It is laxer
// than UserID: an answered claim must not be dropped over its user's id.
// Errors: ErrID, wrapped.
func CheckUserID(id string) error { return checkPrintable(id, UserIDLength) }

// UserID returns a user's or an order's id in the form that is stored, see
// visible. Errors: ErrID, wrapped.
func UserID(id string) (string, error) {
	if err := CheckSegment(id); err != nil {
		return "", err
	}
	return visible(id, UserIDLength)
}

// CheckSegment refuses "." and "..", which clients and proxies resolve in
// paths. Errors: ErrID, wrapped.
func CheckSegment(id string) error {
	if id == "." || id == ".." {
		return fmt.Errorf("%w: must not be . or .., which no path can carry", ErrID)
	}
	return nil
}

// IdempotencyKey returns a key in the form that is compared, see visible.
// Errors: ErrID, wrapped. The caller decides whether a key may be missing.
func IdempotencyKey(key string) (string, error) { return visible(key, IdempotencyKeyLength) }

// visible returns a name in Unicode's normal form C, so that different
// encodings of a name are equal. It refuses invisible characters: names that
// seem identical must be identical. It refuses a blank at either end, a
// mistake that silent trimming would hide. Letter case and similar letters of
// two scripts are the caller's concern.
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

// isUnseen reports whether a printable character is invisible: it has
// Unicode's Default_Ignorable_Code_Point, or is a letter or symbol without
// ink. The former derives from three properties (DerivedCoreProperties.txt).
// Two are checked here. The third, format characters, is not printable.
func isUnseen(r rune) bool {
	switch r {
	case 0x2800, 0x13441, 0x13442, 0x16fe4, 0x1d159: // braille, hieroglyphs, Khitan, music
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
