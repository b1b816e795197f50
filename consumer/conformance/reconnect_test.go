//go:build !race

package conformance

import (
	"os"
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

// Redis restarts twice while 10,000 messages are published; every one arrives. Not under the race detector, which finds
// one in the suite itself (it appends to the published messages while it compares them); package consumer's own restart
// test runs there too.
func TestConformance_Reconnect(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	s := suite{server: testenv.Redis(t, "appendonly yes", "appendfsync always", "enable-debug-command yes")}
	features := tests.Features{
		ConsumerGroups: true, Persistent: true,
		RestartServiceCommand: []string{program, restartRedis, s.server.Addr()},
	}
	tests.TestReconnect(t, tests.TestContext{TestID: tests.NewTestID(), Features: features}, s.ownGroup)
}
