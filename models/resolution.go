package models

import (
	"fmt"
	"time"
)

// Resolved is the result of a decision about a claim.
type Resolved string

// The results. The first two are successes.
const (
	ResolvedNow    Resolved = "resolved" // it was done now
	ResolvedBefore Resolved = "repeated" // the same was done before
	// ResolvedAlreadyRedeemed: by another order, or before it could be released.
	ResolvedAlreadyRedeemed Resolved = "already_redeemed"
	ResolvedAlreadyReleased Resolved = "already_released" // or expired
	// ResolvedPacket: a packet is credited when claimed, so there is no later
	// decision.
	ResolvedPacket      Resolved = "packet"
	ResolvedNotRedeemed Resolved = "not_redeemed" // there is no redeem to undo
	ResolvedNoHold      Resolved = "no_hold"      // it never expires
)

// Resolution is the answer to a decision about a claim.
type Resolution struct {
	Resolved Resolved
	Claim    Claim // as it is now
}

// ReleaseReasonLength bounds a release's reason, in characters.
const ReleaseReasonLength = 200

// CheckReleaseReason checks a release's reason. Errors: ErrID, wrapped. The
// caller decides whether it may be missing.
func CheckReleaseReason(reason string) error { return checkPrintable(reason, ReleaseReasonLength) }

// ParseHold reads a hold's duration such as 15m. Errors say what it must be.
func ParseHold(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d%time.Millisecond != 0 || d < 0 || d > HoldMax {
		return 0, fmt.Errorf("%w: must be a duration such as 15m, in whole milliseconds, at most %s", ErrID, HoldMax)
	}
	return d, nil
}

// ReasonExpired is the reason in the event of a claim that expired.
const ReasonExpired = "expired"
