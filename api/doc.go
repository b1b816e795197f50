// Package api is the HTTP side of Dibs. A claim goes: routes.go (who may) → claims.go (read, check) → combiner.go (many
// callers, one script call) → the Claimer. Everything that can be refused is refused by one table, problem.go.
//
// The two claim routes are plain handlers without reflection; the routes of operators go through huma. All of them are in
// one OpenAPI document.
//
// # What the contract leaves open
//
//   - A body is read whole before its meaning is judged: broken JSON is 400 malformed, a field that is unknown, twice
//     there, null, of the wrong type or out of range is 422 invalid and is named in `field`.
//   - Content-Type is application/json or absent; anything else is 400 malformed.
//   - Without tokens, pages of other sites are 403 forbidden, by Origin, Sec-Fetch-Site and Host; see browser.go.
//   - A full queue is 503 unavailable, surely not claimed; 429 rate_limited is only for a user over the rate of Config.
//   - /healthz, /readyz and /openapi.json are open to everybody; /metrics asks for the viewer's token when tokens are set.
//   - In claims:batch a broken claim is refused on its own; Idempotent-Replayed is set when every claim is a replay.
//   - Beyond the contract's codes there are not_found, method_not_allowed and internal.
//   - The ids "." and ".." are refused: no path can carry them.
package api
