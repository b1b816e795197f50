// Package api is the HTTP API of Dibs: the server, its table of routes
// (routes.go) and its metrics. Subpackages have the rest:
//
//   - auth: who may call a route
//   - route: what follows from the table, such as the OpenAPI document
//   - claiming: the path of a claim, from the request to the script call
//   - claimed: look up, redeem and release claims
//   - operator: campaigns, their packets and their stock
//   - live: streams of campaigns' figures
//   - console: pages for operators
//   - wire: what all routes share, such as the problem table (problem.go),
//     bodies and their JSON
//   - workers: goroutines that outlive a request
//
// claiming, claimed and operator don't import each other. New connects
// them. The routes of a rush are plain handlers without reflection. The
// others use huma. One OpenAPI document has all.
//
// # What the contract leaves open
//
//   - A body is read whole before it is interpreted. Broken JSON is 400
//     malformed. A field that is unknown, repeated, null, of the wrong type
//     or out of range is 422 invalid and named in `field`.
//   - Content-Type is application/json or absent, without Content-Encoding.
//     Any other is 415 unsupported_media_type.
//   - An unknown or repeated query parameter is 422 invalid and named in
//     `field`.
//   - User ids are stored in Unicode's normal form C. A blank at either end
//     is refused.
//   - Without tokens, pages of other sites are 403 forbidden, by Origin,
//     Sec-Fetch-Site and Host; see other_sites.go.
//   - A full queue is 503 unavailable, without a claim. 429 rate_limited is
//     for a user over Config.UserRate.
//   - /healthz, /readyz, /openapi.json and /asyncapi.json need no token. If
//     tokens are set, /metrics needs the viewer's.
//   - In claims:batch an invalid claim is refused alone.
//     Idempotent-Replayed is set if every claim is a replay. If only some
//     are, Idempotent-Replayed-Claims has a character for each claim, in
//     order: 1 for a replay, else 0.
//   - Codes beyond the contract's are not_found, method_not_allowed,
//     unsupported_media_type and internal.
//   - The ids "." and ".." are refused: no path can carry them.
package api
