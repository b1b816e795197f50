// Package build describes this program's build.
package build

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// Set by the linker: -ldflags "-X dibs/internal/build.version=v1.2.3 …".
// Unset ones come from Go's build info.
var version, commit, date string //nolint:gochecknoglobals // the linker sets variables only

// next is the upcoming version, for builds from a clone.
const next = "0.4.0-dev"

// Info describes this program's build.
type Info struct {
	Version string `json:"version"` // such as v1.2.3; next's if unset
	Commit  string `json:"commit"`  // "": unknown
	Date    string `json:"date"`    // RFC 3339, of the build or the commit; "": unknown
}

// Of returns this program's build.
func Of() Info {
	i := Info{Version: version, Commit: commit, Date: date}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if i.Version == "" && info.Main.Version != "(devel)" {
			i.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				i.Commit = cmp.Or(i.Commit, s.Value)
			case "vcs.time":
				i.Date = cmp.Or(i.Date, s.Value)
			}
		}
	}
	i.Version = cmp.Or(i.Version, next)
	return i
}

// String returns "v1.2.3 (commit 0123456, 2027-01-31T18:00:00Z)".
func (i Info) String() string {
	return i.Version + " (commit " + cmp.Or(i.short(), "unknown") + ", " + cmp.Or(i.Date, "date unknown") + ")"
}

// Document is the version of the OpenAPI document: "1.2.3+0123456".
func (i Info) Document() string {
	version := strings.TrimPrefix(i.Version, "v")
	if i.Commit == "" || strings.Contains(version, "+") {
		return version
	}
	return version + "+" + i.short()
}

func (i Info) short() string { return i.Commit[:min(len(i.Commit), 12)] }
