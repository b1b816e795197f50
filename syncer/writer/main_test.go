package writer_test

import (
	"testing"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
)

func TestMain(m *testing.M) {
	syncertest.RunIfHelper(runChild)
	testenv.Main(m)
}
