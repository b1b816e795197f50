package shards_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
)

func TestMain(m *testing.M) {
	redis.SetLogger(noWords{})
	syncertest.RunIfHelper(childPlan, runSeller)
	testenv.Main(m)
}

// noWords is for a client that would tell of every server that a test takes away.
type noWords struct{}

func (noWords) Printf(context.Context, string, ...any) {}
