package testenv

import (
	"path/filepath"
	"testing"
)

// place is a server's own folder and reserved port.
type place struct {
	folder string
	port   int
	remove func() // frees both
}

func newPlace(name string) (place, error) {
	folder, removeFolder, err := newFolder(name)
	if err != nil {
		return place{}, err
	}
	port, releasePort, err := reservePort()
	if err != nil {
		removeFolder()
		return place{}, err
	}
	return place{folder: folder, port: port, remove: func() { removeFolder(); releasePort() }}, nil
}

func (p place) log() string { return filepath.Join(p.folder, "server.log") }

// closeChecked closes a server at the end of a test and fails
// the test if it doesn't end.
func closeChecked(t testing.TB, closeAll func() error) {
	t.Helper()
	if err := closeAll(); err != nil {
		t.Errorf("%v", err)
	}
}
