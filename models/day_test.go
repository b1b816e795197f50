package models_test

import (
	"archive/zip"
	"go/build"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/models"
)

// zonesOfGo are all zones of the IANA database that comes with Go, which time/tzdata embeds.
func zonesOfGo(t *testing.T) (zones []*time.Location) {
	t.Helper()
	archive, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib/time/zoneinfo.zip"))
	require.NoError(t, err)
	defer func() { require.NoError(t, archive.Close()) }()
	known := map[string]bool{} // many names are of one zone
	for _, file := range archive.File {
		if strings.HasSuffix(file.Name, "/") {
			continue
		}
		content, err := file.Open()
		require.NoError(t, err)
		data, err := io.ReadAll(content)
		require.NoError(t, err)
		if known[string(data)] {
			continue
		}
		known[string(data)] = true
		zone, err := time.LoadLocationFromTZData(file.Name, data)
		require.NoError(t, err)
		zones = append(zones, zone)
	}
	require.Greater(t, len(zones), 300)
	return zones
}

// shows reports whether the clocks of a zone show a date, or a later one.
func shows(at time.Time, date string) bool { return at.Format(time.DateOnly) >= date }

// TestStartOfDay_AroundEveryChangeOfTheClocks: a day begins at the first quarter of an hour that
// shows it or a later one, wherever a zone's clocks change from 2020 to 2035, and around New Year.
func TestStartOfDay_AroundEveryChangeOfTheClocks(t *testing.T) {
	t.Parallel()
	changes := 0
	for _, zone := range zonesOfGo(t) {
		for at := time.Date(2019, 12, 31, 12, 0, 0, 0, time.UTC); at.Year() < 2036; at = at.AddDate(0, 0, 1) {
			_, before := at.In(zone).Zone()
			_, after := at.AddDate(0, 0, 1).In(zone).Zone()
			if before != after {
				changes++
			}
			if before == after && at.YearDay() < 365 {
				continue
			}
			for days := -1; days <= 2; days++ {
				requireStartOfDay(t, zone, at.In(zone).AddDate(0, 0, days), 15*time.Minute)
			}
		}
	}
	require.Greater(t, changes, 3000)
}

// requireStartOfDay compares the first moment of a day with what a scan by steps finds.
func requireStartOfDay(t require.TestingT, zone *time.Location, day time.Time, step time.Duration) {
	y, m, d := day.Date()
	date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
	got := models.StartOfDay(y, m, d, zone)
	found := time.Date(y, m, d, 12, 0, 0, 0, time.UTC).Add(-27 * time.Hour).In(zone)
	for !shows(found, date) {
		found = found.Add(step)
	}
	require.True(t, found.Equal(got), "%s %s: scan %s, got %s", zone, date, found.UTC(), got.UTC())
	require.False(t, shows(got.Add(-1), date), "%s %s", zone, date)
}

func TestStartOfDay_WhereClocksWentByMinutesAndDays(t *testing.T) {
	t.Parallel()
	zones := zonesOfGo(t)
	rapid.Check(t, func(t *rapid.T) {
		day := time.Unix(rapid.Int64Range(160_000_000, 2_145_000_000).Draw(t, "moment"), 0)
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		_, change := day.In(zone).ZoneBounds() // days without one are alike
		if !change.IsZero() && change.Year() > 1980 {
			day = change
		}
		requireStartOfDay(t, zone, day.In(zone), time.Minute)
	})
}

func TestParseDay(t *testing.T) {
	t.Parallel()
	for _, day := range []struct{ zone, date, from, to string }{
		{"UTC", "2026-11-21", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
		{"America/Santiago", "2026-09-05", "2026-09-05T04:00:00Z", "2026-09-06T04:00:00Z"},
		{"America/Santiago", "2026-09-06", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"}, // no midnight
		{"America/Havana", "2026-11-01", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},   // two midnights
		{"America/St_Johns", "2010-11-06", "2010-11-06T02:30:00Z", "2010-11-07T02:30:00Z"}, // ends twice
		{"Pacific/Apia", "2011-12-29", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"UTC", "9998-12-31", "9998-12-31T00:00:00Z", "9999-01-01T00:00:00Z"},
	} {
		zone, err := time.LoadLocation(day.zone)
		require.NoError(t, err)
		got, err := models.ParseDay(day.date, zone)
		require.NoError(t, err, day)
		require.Equal(t, []string{day.date, day.from, day.to},
			[]string{got.Date, got.From.UTC().Format(time.RFC3339), got.To.UTC().Format(time.RFC3339)}, day.zone)
	}
	apia, err := time.LoadLocation("Pacific/Apia")
	require.NoError(t, err)
	const years = "date: must be a day such as 2027-01-31, of the years 1970 to 9998"
	for date, says := range map[string]string{
		"2011-12-30": "date: is no day of Pacific/Apia: its calendar went from 2011-12-29 to 2011-12-31",
		"9999-12-31": years, "9999-01-01": years, "1969-12-31": years, "0000-01-01": years, "2027-02-30": years, "27-1-1": years, "": years,
	} {
		_, err := models.ParseDay(date, apia)
		require.EqualError(t, err, says)
	}
}
