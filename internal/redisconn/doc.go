// Package redisconn opens the connections to Redis and checks the servers
// behind them.
//
// A URL names one server, the nodes of a cluster, or Sentinels. Connect makes a
// client for it without opening a connection; Detect also finds out whether the
// one server is part of a cluster.
//
// The clients differ from those that go-redis makes by default:
//
//   - They send no command twice. A claim that is sent again must be told from a second claim.
//   - In a cluster they follow a failover at once, also from a master that hangs.
//   - Where each write must be on disk, each new connection is checked for that.
//
// What the package checks of a server comes in two kinds, which MayPass tells
// apart: refusals that last until a person changes something, and errors that
// may be gone a moment later.
package redisconn
