package machine

import "path/filepath"

// Home is a server's own folder and reserved port.
type Home struct {
	Folder string
	Port   int
	Remove func() // frees both
}

// NewHome makes a home whose folder has the name in its own.
func NewHome(name string) (Home, error) {
	folder, removeFolder, err := Folder(name)
	if err != nil {
		return Home{}, err
	}
	port, releasePort, err := ReservePort()
	if err != nil {
		removeFolder()
		return Home{}, err
	}
	return Home{Folder: folder, Port: port, Remove: func() { removeFolder(); releasePort() }}, nil
}

// Log is the path of the server's log.
func (p Home) Log() string { return filepath.Join(p.Folder, "server.log") }
