package testenv

import (
	"path/filepath"
	"testing"
)

// place is where one server lives: a folder of its own and a reserved port.
type place struct {
	folder string
	port   int
	remove func() // gives both back
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

// closeChecked runs a server's closing at the end of a test and fails the test
// when the server will not end.
func closeChecked(t testing.TB, closeAll func() error) {
	t.Helper()
	if err := closeAll(); err != nil {
		t.Errorf("%v", err)
	}
}
