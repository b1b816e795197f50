package words_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api/console/words"
)

func TestMoneyIsWrittenAndReadInItsCurrency(t *testing.T) {
	t.Parallel()
	for amount, want := range map[int64]string{0: "0.00 EUR", 5: "0.05 EUR", 125: "1.25 EUR", 8_888_800: "88,888.00 EUR", -125: "−1.25 EUR"} {
		require.Equal(t, want, words.Money(amount, "EUR"))
	}
	for code, want := range map[string]string{
		"JPY": "1,234,567 JPY", "IDR": "12,345.67 IDR", "BHD": "1,234.567 BHD", "CLF": "123.4567 CLF",
		"": "1,234,567 minor units", "XAU": "1,234,567 minor units of XAU",
	} {
		require.Equal(t, want, words.Money(1_234_567, code))
	}
	for text, want := range map[string]int64{"1.25": 125, "1.2": 120, "1": 100, "0.05": 5, "88888": 8_888_800} {
		minor, ok := words.ParseMoney(text, "EUR")
		require.True(t, ok, text)
		require.Equal(t, want, minor, text)
	}
	for _, text := range []string{"", ".5", "1,25", "1.255", "-1", "+1", "1e3", "99999999999999999999"} {
		_, ok := words.ParseMoney(text, "EUR")
		require.False(t, ok, text)
	}
	for code, want := range map[string]int64{"JPY": 100_000, "IDR": 10_000_000, "KWD": 100_000_000, "UYW": 1_000_000_000, "": 100_000} {
		minor, ok := words.ParseMoney("100000", code)
		require.True(t, ok, code)
		require.Equal(t, want, minor, code)
	}
	_, ok := words.ParseMoney("1.5", "JPY")
	require.False(t, ok)
}
