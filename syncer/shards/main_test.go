package shards_test

import (
	"testing"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
)

func TestMain(m *testing.M) {
	syncertest.RunIfHelper(runSeller)
	testenv.Main(m)
}
