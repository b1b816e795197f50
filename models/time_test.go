package models

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2027-01-31T18:00:00Z": "2027-01-31T18:00:00Z", "2027-01-31t18:00:00z": "2027-01-31T18:00:00Z",
		"2027-01-31T18:00:00.5+23:59": "2027-01-30T18:01:00.5Z", "2027-01-31T18:00:00-00:00": "2027-01-31T18:00:00Z",
	} {
		at, err := ParseTime(text)
		require.NoError(t, err, text)
		require.Equal(t, want, at.UTC().Format(time.RFC3339Nano), text)
	}
	for _, text := range []string{
		"", "2027-01-31", "2027-01-31T18:00:00", "2027-01-31 18:00:00Z", "2027-01-31T8:00:00Z", "2027-01-31T18:00:00,5Z", "2027-01-31T18:00:00+24:00",
		"2027-01-31T18:00:00+23:60", "2027-02-30T18:00:00Z", "2027-01-31T24:00:00Z",
	} {
		_, err := ParseTime(text)
		require.Error(t, err, text)
	}
}
