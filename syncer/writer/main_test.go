package writer_test

import (
	"flag"
	"testing"

	"dibs/internal/testkit/testenv"
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.shrinktime", "5s") // a run that does not settle takes seconds
	testenv.Main(m)
}
