// Package testenv gives tests real servers: Redis, Redis
// Cluster, Sentinel, MariaDB or MySQL.
// Only _test.go files import it, which internal/arch checks.
//
// A server is a child process of the test binary, on a free port of
// 127.0.0.1, with its data in a temporary folder (in memory where there is
// enough). It ends with its test, or with the test binary, even when that is
// killed. Without a server program, a container is used. Without Docker, too,
// the test fails and names what to install. Nothing is ever skipped.
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
// started on first use. Keep tests apart there with UniqueID. A test that
// kills, pauses or fills a server starts its own (Redis, SQLServer).
package testenv
