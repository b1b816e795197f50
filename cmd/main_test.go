package cmd

import (
	"os"
	"testing"

	"dibs/internal/testkit/testenv"
)

// TestMain is also the program itself, for services that commands start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		Main(Run)
	}
	testenv.Main(m)
}
