package calendar_test

import (
	"archive/zip"
	"bytes"
	"go/build"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/models/calendar"
)

// zonesOfGo returns all zones of Go's own database, which the embedded copy
// must equal.
func zonesOfGo(t *testing.T) (zones []*time.Location) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(build.Default.GOROOT, "lib/time/zoneinfo.zip"))
	require.NoError(t, err)
	embedded, err := os.ReadFile("zoneinfo.zip")
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, embedded), "a new Go: cp $(go env GOROOT)/lib/time/zoneinfo.zip models/calendar/")
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	require.NoError(t, err)
	known := map[uint32]bool{} // many names share one zone
	for _, file := range archive.File {
		if strings.HasSuffix(file.Name, "/") || known[file.CRC32] {
			continue
		}
		known[file.CRC32] = true
		zone, err := calendar.LoadZone(file.Name)
		require.NoError(t, err)
		require.Equal(t, file.Name, zone.String())
		zones = append(zones, zone)
	}
	require.Greater(t, len(zones), 300)
	return zones
}

// localtime is a file on many machines, but not a zone.
func TestLoadZone_KnowsNoZoneOfTheMachine(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Local", "localtime", "posix/Europe/Berlin", "right/UTC", "europe/berlin", "Europe", "Europe/", "/UTC", "../UTC"} {
		_, err := calendar.LoadZone(name)
		require.Error(t, err, name)
	}
	for range 2 { // from the database, then from the cache
		berlin, err := calendar.LoadZone("Europe/Berlin")
		require.NoError(t, err)
		require.Equal(t, 18, time.Date(2027, 7, 1, 16, 0, 0, 0, time.UTC).In(berlin).Hour())
	}
}

// shows reports whether this moment's date is the given one or a later one.
func shows(at time.Time, date string) bool { return at.Format(time.DateOnly) >= date }

// A day must begin at the first quarter of an hour that shows its date or a
// later one. Checked around every clock change from 2020 to 2035, and around
// New Year.
func TestStartOfDay_AroundEveryChangeOfTheClocks(t *testing.T) {
	t.Parallel()
	changes := 0
	for _, zone := range zonesOfGo(t) {
		for at := time.Date(2019, 12, 31, 12, 0, 0, 0, time.UTC); at.Year() < 2036; at = at.AddDate(0, 0, 1) {
			isChange := clocksChange(at, zone)
			if isChange {
				changes++
			}
			if !isChange && at.YearDay() < 365 {
				continue
			}
			for days := -1; days <= 2; days++ {
				requireStartOfDay(t, zone, at.In(zone).AddDate(0, 0, days))
			}
		}
	}
	require.Greater(t, changes, 3000)
}

func clocksChange(at time.Time, zone *time.Location) bool {
	_, before := at.In(zone).Zone()
	_, after := at.AddDate(0, 0, 1).In(zone).Zone()
	return before != after
}

func TestParseLocal(t *testing.T) {
	t.Parallel()
	zone, err := calendar.LoadZone("America/New_York")
	require.NoError(t, err)
	for text, want := range map[string]string{
		"2027-01-31T18:00": "2027-01-31T23:00:00Z", "2027-01-31t18:00": "2027-01-31T23:00:00Z", "2027-07-31T18:00:01": "2027-07-31T22:00:01Z",
		"2027-01-31T18:00:00.5": "2027-01-31T23:00:00.5Z", "2026-11-01T01:30:00-05:00": "2026-11-01T06:30:00Z", "2026-03-08T02:30:00z": "2026-03-08T02:30:00Z",
	} {
		got, err := calendar.ParseLocal(text, zone, "")
		require.NoError(t, err, text)
		require.Equal(t, want, got.UTC().Format(time.RFC3339Nano), text)
	}
	for which, want := range map[calendar.Twice]string{calendar.TwiceFirst: "05", calendar.TwiceSecond: "06"} {
		got, err := calendar.ParseLocal("2026-11-01T01:30", zone, which)
		require.NoError(t, err)
		require.Equal(t, "2026-11-01T"+want+":30:00Z", got.UTC().Format(time.RFC3339))
		require.Equal(t, "2026-11-01T01:30", calendar.FormatLocal(got, zone))
	}
	for text, want := range map[string]string{
		"2026-03-08T02:30": "must be a time that exists: the clocks of America/New_York skip 2026-03-08T02:30, and go on at 2026-03-08T03:00",
		"2026-11-01T01:30": "must be the first or the second of its kind: the clocks of America/New_York show it twice, " +
			"as 2026-11-01T01:30:00-04:00 and as 2026-11-01T01:30:00-05:00",
		"2027-1-31T18:00": "must be a time such as 2027-01-31T18:00, not “2027-1-31T18:00”",
	} {
		_, err := calendar.ParseLocal(text, zone, "")
		require.EqualError(t, err, want, text)
	}
}

// requireStartOfDay compares the start of a day with a scan in quarters of an
// hour.
func requireStartOfDay(t *testing.T, zone *time.Location, day time.Time) {
	t.Helper()
	y, m, d := day.Date()
	date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
	got := calendar.StartOfDay(y, m, d, zone)
	found := time.Date(y, m, d, 12, 0, 0, 0, time.UTC).Add(-27 * time.Hour).In(zone)
	for !shows(found, date) {
		found = found.Add(15 * time.Minute)
	}
	require.True(t, found.Equal(got), "%s %s: scan %s, got %s", zone, date, found.UTC(), got.UTC())
	require.False(t, shows(got.Add(-1), date), "%s %s", zone, date)
}

func TestParseDay(t *testing.T) {
	t.Parallel()
	for _, day := range []struct{ zone, date, from, to string }{
		{"America/Santiago", "2026-09-05", "2026-09-05T04:00:00Z", "2026-09-06T04:00:00Z"},
		// no midnight
		{"America/Santiago", "2026-09-06", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"},
		// two midnights
		{"America/Havana", "2026-11-01", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		// ends twice
		{"America/St_Johns", "2010-11-06", "2010-11-06T02:30:00Z", "2010-11-07T02:30:00Z"},
		{"Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"UTC", "9998-12-31", "9998-12-31T00:00:00Z", "9999-01-01T00:00:00Z"},
	} {
		zone, err := calendar.LoadZone(day.zone)
		require.NoError(t, err)
		got, err := calendar.ParseDay(day.date, zone)
		require.NoError(t, err, day)
		require.Equal(t, []string{day.date, day.from, day.to},
			[]string{got.Date, got.From.UTC().Format(time.RFC3339), got.To.UTC().Format(time.RFC3339)}, day.zone)
	}
	apia, err := calendar.LoadZone("Pacific/Apia")
	require.NoError(t, err)
	const years = "must be a day such as 2027-01-31, of the years 1970 to 9998"
	for date, says := range map[string]string{
		"2011-12-30": "is no day of Pacific/Apia: its calendar went from 2011-12-29 to 2011-12-31",
		"9999-12-31": years, "9999-01-01": years, "1969-12-31": years, "0000-01-01": years, "2027-02-30": years, "27-1-1": years, "": years,
	} {
		_, err := calendar.ParseDay(date, apia)
		require.EqualError(t, err, says)
	}
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2027-01-31T18:00:00Z": "2027-01-31T18:00:00Z", "2027-01-31t18:00:00z": "2027-01-31T18:00:00Z",
		"2027-01-31T18:00:00.5+23:59": "2027-01-30T18:01:00.5Z", "2027-01-31T18:00:00-00:00": "2027-01-31T18:00:00Z",
	} {
		at, err := calendar.ParseTime(text)
		require.NoError(t, err, text)
		require.Equal(t, want, at.UTC().Format(time.RFC3339Nano), text)
	}
	for _, text := range []string{
		"", "2027-01-31", "2027-01-31T18:00:00", "2027-01-31 18:00:00Z", "2027-01-31T8:00:00Z", "2027-01-31T18:00:00,5Z", "2027-01-31T18:00:00+24:00",
		"2027-01-31T18:00:00+23:60", "2027-02-30T18:00:00Z", "2027-01-31T24:00:00Z", "9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00",
	} {
		_, err := calendar.ParseTime(text)
		require.Error(t, err, text)
	}
}
