package calendar

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"io/fs"
	"sync"
	"time"
)

// zoneinfo is the IANA database from Go's lib/time. time.LoadLocation would
// prefer the machine's: processes could differ in their zones and rules.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

// zones caches the zones by name. It is bounded by the database.
var zones sync.Map //nolint:gochecknoglobals // what is in it is the same for everybody

var zoneFiles = sync.OnceValues(func() (*zip.Reader, error) {
	return zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
})

// LoadZone is time.LoadLocation with the embedded database only. Neither ""
// nor Local is a zone, nor anything else that this machine has.
func LoadZone(name string) (*time.Location, error) {
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil //nolint:forcetypeassert // nothing else is in it
	}
	files, err := zoneFiles()
	if err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, err
	}
	zones.Store(name, zone)
	return zone, nil
}
