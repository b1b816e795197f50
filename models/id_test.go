package models_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

func TestEveryIDHasItsOwnLength(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		check func(string) error
		most  int
	}{
		"campaign": {models.CheckCampaignID, 64},
		"claim":    {models.CheckClaimID, 64},
		"user":     {models.CheckUserID, 128},
		"key":      {models.CheckIdempotencyKey, 255},
		"reason":   {models.CheckReleaseReason, 200},
	} {
		require.NoError(t, one.check("a"), name)
		require.NoError(t, one.check(strings.Repeat("a", one.most)), name)
		for _, bad := range []string{"", strings.Repeat("a", one.most+1)} {
			err := one.check(bad)
			require.ErrorIs(t, err, models.ErrID, name)
			require.ErrorContains(t, err, "must be 1 to "+strconv.Itoa(one.most)+" characters", name)
		}
	}
}

func TestARefusedIDSaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	for id, words := range map[string]string{
		"\xc3\x28": "not valid UTF-8", "a\u200bb": "not printable", "a\x7f": "not printable", "\u00ad": "not printable", "\ufffe": "not printable",
		"\u3000": "not printable", strings.Repeat("é", 128) + "\x00": "not printable",
	} {
		err := models.CheckUserID(id)
		require.ErrorIs(t, err, models.ErrID, "%q", id)
		require.ErrorContains(t, err, words, "%q", id)
	}
	require.ErrorContains(t, models.CheckCampaignID("a b"), "only A-Z a-z 0-9 . _ - are allowed")
}

// Every byte, at every place: what CheckCampaignID takes is what the contract says.
func TestCampaignIDsAreOfTheirCharacters(t *testing.T) {
	t.Parallel()
	legal := regexp.MustCompile(`\A[A-Za-z0-9._-]{1,64}\z`)
	for c := range 256 {
		for _, id := range []string{string([]byte{byte(c)}), "a" + string([]byte{byte(c)}), string([]byte{byte(c)}) + "z"} {
			require.Equal(t, legal.MatchString(id), models.CheckCampaignID(id) == nil, "%q", id)
		}
	}
}

func FuzzCheckCampaignID(f *testing.F) {
	legal := regexp.MustCompile(`\A[A-Za-z0-9._-]{1,64}\z`)
	for _, id := range []string{"spring", "", "a\n", "..", strings.Repeat("x", 65), "ä"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		require.Equal(t, legal.MatchString(id), models.CheckCampaignID(id) == nil, "%q", id)
	})
}

// FuzzCheckUserID holds the quick way for plain text to the slow one for all.
func FuzzCheckUserID(f *testing.F) {
	for _, id := range []string{"ada", "", "a b", "日本", "\x7f", "\u00a0", strings.Repeat("x", 128) + "é", "\xff", " "} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		legal := id != "" && utf8.ValidString(id) && utf8.RuneCountInString(id) <= models.UserIDLength
		for _, r := range id {
			legal = legal && strconv.IsPrint(r)
		}
		require.Equal(t, legal, models.CheckUserID(id) == nil, "%q", id)
	})
}

func TestOneNameIsOneUser(t *testing.T) {
	t.Parallel()
	for written, kept := range map[string]string{
		"ada": "ada", "a da": "a da", "zo\u00eb": "zo\u00eb", "zoe\u0308": "zo\u00eb", "\u212bngstr\u00f6m": "\u00c5ngstr\u00f6m",
		strings.Repeat("e\u0308", 128): strings.Repeat("\u00eb", 128), "\u1100\u1161": "\uac00",
	} {
		id, err := models.UserID(written)
		require.NoError(t, err, written)
		require.Equal(t, kept, id)
	}
	for _, bad := range []string{"", " ", " ada", "ada ", " zo\u00eb", "a\u00a0b", "\xff", strings.Repeat("a", 129), strings.Repeat("\u0958", 65)} {
		_, err := models.UserID(bad)
		require.ErrorIs(t, err, models.ErrID, "%q", bad)
	}
}
