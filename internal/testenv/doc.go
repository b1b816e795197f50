// Package testenv gives tests real servers: Redis, Redis Cluster, MariaDB or
// MySQL, and a proxy that cuts connections. Only _test.go files import it;
// internal/arch keeps that so.
//
// A server is a process of the test binary's own, on a free port of 127.0.0.1,
// with its data in a temporary folder (in memory where the machine has space
// for that). It ends with its test, or with the test binary, even when that is
// killed. Where a server program is missing and a Docker engine answers, the
// server is a container instead; where neither is at hand the test fails and
// says what to install. Nothing is ever skipped.
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
//	func TestClaim(t *testing.T) {
//		t.Parallel()
//		rdb := testenv.SharedRedis(t).Client()
//		db := testenv.Database(t)
//		...
//	}
//
// Shared servers (SharedRedis, Database) are cheap: one per test binary,
// started when first asked for. Keep tests apart there with UniqueID. A test
// that kills, pauses or fills a server starts its own (Redis, SQLServer).
package testenv
