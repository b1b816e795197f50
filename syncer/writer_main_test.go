package syncer_test

import (
	"dibs/internal/testenv"
	"testing"
)

func TestMain(m *testing.M) {
	runIfHelper(childEvents, runChild)
	testenv.Main(m)
}
