package resolve_test

import (
	"testing"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
)

func TestMain(m *testing.M) {
	syncertest.RunIfHelper(runResolverChild)
	testenv.Main(m)
}
