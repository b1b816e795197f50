package consumer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
)

// A claim that no replica has yet is not booked: a failover would undo it, and give its place to another. It comes again.
func TestConsumer_BooksWhatAReplicaHas(t *testing.T) {
	t.Parallel()
	primary, replica := testenv.Redis(t, "repl-diskless-sync-delay 0"), testenv.Redis(t)
	testenv.Replicate(t, replica, primary)
	scripts, err := lua.New(primary.Client(), lua.Options{Partitions: 2, Durability: lua.Durability{Replicas: 1}})
	require.NoError(t, err)
	sink := newBooks()
	r := startRoleBehind(t, primary.Client(), sink, scripts.AwaitReplicas)
	r.claim(t, 0, 1)
	r.eventuallyBooked(t, 1)

	replica.Pause()
	failed := metric(t, r.reg, "redis_errors_total")
	r.claim(t, 1, 2)
	require.Eventually(t, func() bool { return metric(t, r.reg, "redis_errors_total") > failed+1 }, patience, time.Millisecond)
	booked, _ := sink.counts()
	require.Equal(t, 1, booked, "the replica lacks the second")
	replica.Resume()
	r.eventuallyBooked(t, 2)
}
