package models

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"io/fs"
	"sync"
	"time"
)

// zoneinfo is the IANA database as Go has it in lib/time. time.LoadLocation
// prefers the database of the machine: a zone that one process knows, another
// would not, or by other rules.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

// zones are the zones that were asked for, by name. There are as many as the
// database has.
var zones sync.Map //nolint:gochecknoglobals // what is in it is the same for everybody

// zoneFiles opens the database.
var zoneFiles = sync.OnceValues(func() (*zip.Reader, error) {
	return zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
})

// LoadZone is time.LoadLocation with the names and rules of the embedded
// database alone: neither "", nor Local, nor what else this machine has is a
// zone.
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
