package models

import (
	"fmt"
	"time"
)

// Resolved is the result of an attempt to redeem or release a claim.
type Resolved string

// The results. The first two are a success.
const (
	ResolvedNow    Resolved = "resolved" // it was done now
	ResolvedBefore Resolved = "repeated" // the very same was done before
	// by another order, or before it could be released
	ResolvedAlreadyRedeemed Resolved = "already_redeemed"
	ResolvedAlreadyReleased Resolved = "already_released" // or expired
	// a packet is credited when it is claimed: nothing is left to decide
	ResolvedPacket      Resolved = "packet"
	ResolvedNotRedeemed Resolved = "not_redeemed" // there is no redeem to take back
	ResolvedNoHold      Resolved = "no_hold"      // it may stay unredeemed for ever
)

// Resolution is the answer to an attempt to redeem or release a claim.
type Resolution struct {
	Resolved Resolved
	Claim    Claim // as it is now
}

// ReleaseReasonLength bounds the reason of a release, in characters.
const ReleaseReasonLength = 200

// CheckReleaseReason returns nil, or ErrID wrapped, for the reason of a
// release. The caller decides whether a reason may be missing.
func CheckReleaseReason(reason string) error { return checkPrintable(reason, ReleaseReasonLength) }

// ParseHold reads a duration of holds such as 15m. Errors name what it must be.
func ParseHold(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d%time.Millisecond != 0 || d < 0 || d > HoldMax {
		return 0, fmt.Errorf("%w: must be a duration such as 15m, in whole milliseconds, at most %s", ErrID, HoldMax)
	}
	return d, nil
}

// ReasonExpired is the reason in the event of a claim that was not redeemed in
// time.
const ReasonExpired = "expired"
