// Package api is the HTTP side of Dibs: the server, its table of routes
// (routes.go), who may call them (auth.go), its OpenAPI document and its
// metrics. The routes themselves are in subpackages:
//
//   - claiming: the path of a claim, from the request to the script call
//   - claimed: claims that were made: look-ups, redeem and release
//   - operator: campaigns, their packets and their stock
//   - wire: what all routes share: the problem table (problem.go), bodies and their JSON
//   - workers: goroutines that outlive a request
//
// claiming, claimed and operator don't know each other; New gives each what it
// needs of another. The routes of a rush are plain handlers without reflection,
// the others go through huma. All are in one OpenAPI document.
//
// # What the contract leaves open
//
//   - A body is read whole before its meaning is checked: broken JSON is 400 malformed; a field that is unknown, there twice, null, of
//     the wrong type or out of range is 422 invalid and is named in `field`.
//   - Content-Type is application/json or absent, and there is no Content-Encoding; any other is 415 unsupported_media_type.
//   - Query parameters that a route does not know, or that are there twice, are 422 invalid and named in `field`.
//   - Ids of users are kept in Unicode's normal form C. A blank at either end of one is refused.
//   - Without tokens, pages of other sites are 403 forbidden, by Origin, Sec-Fetch-Site and Host; see other_sites.go.
//   - A full queue is 503 unavailable, and no claim was made; 429 rate_limited is for a user over Config.UserRate.
//   - /healthz, /readyz, /openapi.json and /asyncapi.json need no token; /metrics needs the viewer's when tokens are set.
//   - In claims:batch an invalid claim is refused on its own; Idempotent-Replayed is set when every claim is a replay.
//     When some are, Idempotent-Replayed-Claims has a character for each claim, in order: 1 for a replay, 0 for any other result.
//   - Beyond the contract's codes there are not_found, method_not_allowed, unsupported_media_type and internal.
//   - The ids "." and ".." are refused: no path can carry them.
package api
