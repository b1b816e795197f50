package models

// Resolved is the result of an attempt to redeem or release a claim.
type Resolved string

// The results. The first two are a success.
const (
	ResolvedNow             Resolved = "resolved"         // it was done now
	ResolvedBefore          Resolved = "repeated"         // the very same was done before
	ResolvedAlreadyRedeemed Resolved = "already_redeemed" // by another order, or before it could be released
	ResolvedAlreadyReleased Resolved = "already_released" // or expired
	ResolvedPacket          Resolved = "packet"           // a packet is credited when it is claimed: nothing is left to decide
)

// Resolution is the answer to an attempt to redeem or release a claim.
type Resolution struct {
	Resolved Resolved
	Claim    Claim // as it is now
}

// ReleaseReasonLength bounds the reason of a release, in characters.
const ReleaseReasonLength = 200

// CheckReleaseReason returns nil, or ErrID wrapped, for the reason of a release. The caller decides whether a reason may be missing.
func CheckReleaseReason(reason string) error { return checkPrintable(reason, ReleaseReasonLength) }

// ReasonExpired is the reason in the event of a claim that was not redeemed in time.
const ReasonExpired = "expired"
