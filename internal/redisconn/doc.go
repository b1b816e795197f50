// Package redisconn opens the connections to Redis and checks the servers.
//
// A URL names one server, the nodes of a cluster, or Sentinels. Connect makes
// a client for it without opening a connection. Detect also finds out whether
// the one server is a cluster node.
//
// The clients differ from go-redis's defaults:
//
//   - They never resend a command: Dibs could not distinguish a
//     resent claim from a second one.
//   - In a cluster they follow a failover at once, also from a
//     master that stalls.
//   - Where each write must be on disk, each new connection is
//     checked for that.
//
// MayPass separates two kinds of failed checks: refusals that last until a
// person changes something, and errors that may end by themselves.
package redisconn
