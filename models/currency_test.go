package models_test

import (
	"encoding/csv"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

// Every code of three capital letters is tried.
func TestMinorUnitsAreThoseOfISO4217(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/iso4217.csv")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	list := csv.NewReader(file)
	list.Comment = '#'
	rows, err := list.ReadAll()
	require.NoError(t, err)
	// withdrawn
	listed := map[string]string{"ANG": "2", "BGN": "2", "CUC": "2", "HRK": "2", "SLL": "2", "ZWL": "2"}
	for _, row := range rows {
		listed[row[0]] = row[1]
	}
	require.Len(t, listed, 184)
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			for c := 'A'; c <= 'Z'; c++ {
				code := string([]rune{a, b, c})
				digits, ok := models.MinorDigits(code)
				want, err := strconv.Atoi(listed[code]) // "N.A.", or no code at all
				if ok != (err == nil) || digits != want {
					require.Fail(t, "other digits", "%s: %d %v", code, digits, ok)
				}
			}
		}
	}
	for _, code := range []string{"", "eur", "EU", "D A", "EURO", "EUR ", "R A"} {
		_, ok := models.MinorDigits(code)
		require.False(t, ok, code)
	}
}
