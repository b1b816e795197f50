package models

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Lengths of the ids that outsiders choose.
const (
	// CampaignIDLength is the longest id of a campaign or a packet, in characters of A-Z a-z 0-9 . _ -.
	CampaignIDLength = 64
	// ReasonLength bounds the reasons that MySQL keeps, in characters: the width of the column.
	ReasonLength = 500
	// UserIDLength is the longest id of a user or an order, in printable characters.
	UserIDLength = 128
	// IdempotencyKeyLength is the longest idempotency key, in printable characters.
	IdempotencyKeyLength = 255
)

// ErrID is wrapped by every refusal of an id; the message says what is wrong with it.
var ErrID = errors.New("models: bad id")

// CheckCampaignID returns nil, or ErrID wrapped, for the id of a campaign or a packet.
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

// CheckClaimID returns nil, or ErrID wrapped, for the id of a claim. Dibs makes these ids, but callers may ask for any.
func CheckClaimID(id string) error { return CheckCampaignID(id) }

// CheckUserID returns nil, or ErrID wrapped, for the id of a user or an order.
func CheckUserID(id string) error { return checkPrintable(id, UserIDLength) }

// UserID is the id of a user as Dibs keeps it, in Unicode's normal form C, so that two ways to write one name are one user. Errors:
// ErrID, wrapped; a space before or after an id is a mistake, and is not trimmed silently.
func UserID(id string) (string, error) {
	if !isASCII(id) {
		id = norm.NFC.String(id)
	}
	if err := CheckUserID(id); err != nil {
		return "", err
	}
	if id[0] == ' ' || id[len(id)-1] == ' ' {
		return "", fmt.Errorf("%w: must not begin or end with a blank", ErrID)
	}
	return id, nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// CheckIdempotencyKey returns nil, or ErrID wrapped, for an idempotency key. The caller decides whether a key may be missing.
func CheckIdempotencyKey(key string) error { return checkPrintable(key, IdempotencyKeyLength) }

// checkPrintable counts characters, not bytes. Printable is what strconv.IsPrint says: letters, marks, numbers, punctuation, symbols and
// the ASCII space.
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
