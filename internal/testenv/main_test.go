package testenv_test

import (
	"os"
	"path/filepath"
	"testing"

	"dibs/internal/testenv"
)

// TestMain also makes this binary a stand-in for the docker client, when it is called by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "docker" {
		os.Exit(fakeDocker(os.Args[1:], os.Getenv(fakeDockerLog)))
	}
	testenv.Main(m)
}
