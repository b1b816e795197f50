//go:build !race

package redisbatch_test

import (
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

// reconnectMessages is how many messages the suite publishes in that test.
const reconnectMessages = 10_000

// Redis restarts twice while the suite publishes; every message arrives. Not under the race detector, which finds a race
// in the suite itself (it appends to the published messages while it compares them); TestSubscriber_SurvivesARestartOfRedis runs there
// too. For the same reason the last message is held back a little: the suite must have noted it as published
// before it compares.
func TestConformance_Reconnect(t *testing.T) {
	t.Parallel()
	for name, batches := range map[string]bool{"entries": false, "batches": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reconnect(t, suite{server: testenv.Redis(t, "appendonly yes", "appendfsync always", "enable-debug-command yes"), batches: batches})
		})
	}
}

func reconnect(t *testing.T, s suite) {
	program, err := os.Executable()
	require.NoError(t, err)
	features := tests.Features{
		ConsumerGroups: true, Persistent: true,
		RestartServiceCommand: []string{program, restartRedis, s.server.Addr()},
	}
	tests.TestReconnect(t, tests.TestContext{TestID: tests.NewTestID(), Features: features},
		func(t *testing.T) (message.Publisher, message.Subscriber) {
			publisher, subscriber := s.ownGroup(t)
			seen := map[string]bool{}
			held, err := message.MessageTransformSubscriberDecorator(func(msg *message.Message) {
				if seen[msg.UUID] = true; len(seen) == reconnectMessages {
					<-time.After(time.Second)
				}
			})(subscriber)
			require.NoError(t, err)
			return publisher, held
		})
}
