// Package client calls Dibs from a storefront, or from an operator's program.
//
//	c, err := client.New(client.Config{
//		BaseURL: "https://dibs.internal", Token: token,
//	})
//	claim, err := c.Claim(ctx, client.ClaimRequest{
//		CampaignID: "spring-sale", UserID: user,
//	})
//	switch {
//	case err == nil:
//		// the user holds claim.ID
//	case errors.Is(err, client.ErrSoldOut):
//		// a refusal, which is normal
//	case errors.Is(err, client.ErrOutcomeUnknown):
//		// the claim may have been made: retry with the error's key
//	}
//
// # Refusals
//
// A refusal by the service is a *Problem with code, field and text. Each
// code of the service is a Code here. Test for it with errors.Is.
//
// # Retries
//
// A call is retried after a broken connection, after 502, 503 and 504, and
// after 429. Retries have exponential back-off with jitter. They never come
// earlier than Retry-After, more often than Config.Attempts, or after the
// context's deadline. All calls of this package are safe to repeat: reads,
// calls that set a state, and claims, because a claim always has the same
// idempotency key: the caller's, or one made for the call.
//
// So a claim is made once, however often it was sent. If no answer arrived
// and the claim may have been made, the error is an *OutcomeError with the
// key for another try. Any other call that may have taken effect has this
// error too, such as a redeem that the service could not finish.
//
// # Shared requests
//
// Concurrent claims through one Client share requests. A claim is sent at
// once, in its own request, if no call of its campaign is in flight. Others
// wait and share the next call: when one returns, when Config.Batch of them
// wait, or after a millisecond. A campaign has at most eight calls in flight,
// and at most a quarter of Config.Connections. Beyond 4,096 claims of a
// campaign its callers wait. So a slow campaign delays only its own claims.
//
// A caller gets the answer that its own request would get: each claim has
// its own key, attempts and error. If a caller's context ends, the others
// continue. Its error is ErrUnavailable if its claim wasn't sent, else an
// *OutcomeError.
package client
