// Package client calls Dibs from a storefront, or from an operator's program.
//
//	c, err := client.New(client.Config{BaseURL: "https://dibs.internal", Token: token})
//	claim, err := c.Claim(ctx, client.ClaimRequest{CampaignID: "spring-sale", UserID: user})
//	switch {
//	case err == nil:
//		// claim.ID is theirs
//	case errors.Is(err, client.ErrSoldOut):
//		// a refusal: business as usual
//	case errors.Is(err, client.ErrOutcomeUnknown):
//		// the claim may have been made: ask again with the key that the error carries
//	}
//
// # Refusals
//
// Whatever the service refuses is a *Problem with the code, the field and the
// words of the refusal. Each code of the service is a Code here, to be asked
// for with errors.Is.
//
// # Asking again
//
// A call that is safe to repeat is retried automatically after a broken
// connection, after 502, 503 and 504, and after 429: with exponential back-off
// and jitter, never sooner than Retry-After says, Config.Attempts times at
// most, and never beyond the deadline of its context. All calls of this package
// are safe: reads, calls that set a state, and claims, because a claim is sent
// with an idempotency key, always the same: the caller's, or one made for the
// call.
//
// So a claim is made once, however often it was sent. What can remain is doubt:
// when no answer came in the end and the claim may have been made, the error is
// an *OutcomeError, which carries the key to ask again with.
//
// # Sharing requests
//
// Goroutines that claim through one Client at the same time share requests by
// themselves. A claim goes at once, in a request of its own, when no call of
// its campaign is in flight. Others of the campaign gather in the meantime and
// share the next call: when one came back, when Config.Batch of them wait, or
// after a millisecond. A campaign has at most eight calls in flight, and a
// quarter of Config.Connections; beyond 4,096 claims under way its callers
// wait. So a slow campaign holds up its own claims only.
//
// A caller gets the answer that a request of its own would have got: each claim
// has its own key, attempts and error. A caller whose context ends leaves the
// others alone. Its error is ErrUnavailable if its claim was not sent, an
// *OutcomeError if it was.
package client
