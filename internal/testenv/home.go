package testenv

import (
	"path/filepath"
	"testing"
)

// home is a server's own folder and reserved port.
type home struct {
	folder string
	port   int
	remove func() // frees both
}

func newHome(name string) (home, error) {
	folder, removeFolder, err := newFolder(name)
	if err != nil {
		return home{}, err
	}
	port, releasePort, err := reservePort()
	if err != nil {
		removeFolder()
		return home{}, err
	}
	return home{folder: folder, port: port, remove: func() { removeFolder(); releasePort() }}, nil
}

func (p home) log() string { return filepath.Join(p.folder, "server.log") }

// closeChecked closes a server at the end of a test and fails
// the test if it doesn't end.
func closeChecked(t testing.TB, closeAll func() error) {
	t.Helper()
	if err := closeAll(); err != nil {
		t.Errorf("%v", err)
	}
}
