package models

// Resolved is what an attempt to redeem or release a claim came to.
type Resolved string

// What may come of it. The first two are a yes.
const (
	ResolvedNow             Resolved = "resolved"         // it was done now
	ResolvedBefore          Resolved = "repeated"         // the very same was done before
	ResolvedAlreadyRedeemed Resolved = "already_redeemed" // by another order, or it was to be released
	ResolvedAlreadyReleased Resolved = "already_released" // or it expired
	ResolvedPacket          Resolved = "packet"           // a packet's amount was credited as it was claimed: nothing is left to decide
)

// Resolution is the answer to an attempt to redeem or release a claim.
type Resolution struct {
	Resolved Resolved
	Claim    Claim // as it is now
}

// ReleaseReasonLength bounds the reason of a release, in characters.
const ReleaseReasonLength = 200

// CheckReleaseReason returns nil, or ErrID wrapped, for the reason of a release. No reason at all is the caller's to allow.
func CheckReleaseReason(reason string) error { return checkPrintable(reason, ReleaseReasonLength) }

// ReasonExpired is the reason in the event of a claim that nobody redeemed in time.
const ReasonExpired = "expired"
