package models_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

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
		"user":     {checkOf(models.UserID), 128},
		"subject":  {checkOf(func(text string) (string, error) { return models.Subject("device", text) }), 128},
		"key":      {checkOf(models.IdempotencyKey), 255},
		"event":    {models.CheckUserID, 128},
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

func checkOf(parse func(string) (string, error)) func(string) error {
	return func(text string) error {
		_, err := parse(text)
		return err
	}
}

func TestARefusedIDSaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	for id, words := range map[string]string{
		"\xc3\x28": "not valid UTF-8", "a\u200bb": "not printable", "a\x7f": "not printable", strings.Repeat("é", 128) + "\x00": "not printable",
	} {
		for _, err := range []error{models.CheckUserID(id), checkOf(models.UserID)(id)} {
			require.ErrorIs(t, err, models.ErrID, "%q", id)
			require.ErrorContains(t, err, words, "%q", id)
		}
	}
	for id, words := range map[string]string{
		"bob\ufe0f": "U+FE0F, which cannot be seen", "\u3164": "U+3164", "..": "no path can carry",
	} {
		require.ErrorContains(t, checkOf(models.UserID)(id), words, "%q", id)
	}
	require.ErrorContains(t, checkOf(models.UserID)("a "), "blank")
	require.ErrorContains(t, models.CheckCampaignID("a b"), "only A-Z a-z 0-9 . _ - are allowed")
}

// Every byte is tried at every position. The contract names the allowed ones.
func TestCampaignIDsAreOfTheirCharacters(t *testing.T) {
	t.Parallel()
	legal := regexp.MustCompile(`\A[A-Za-z0-9._-]{1,64}\z`)
	for c := range 256 {
		for _, id := range []string{string([]byte{byte(c)}), "a" + string([]byte{byte(c)}), string([]byte{byte(c)}) + "z"} {
			require.Equal(t, legal.MatchString(id), models.CheckCampaignID(id) == nil, "%q", id)
		}
	}
}

// FuzzCheckUserID compares the fast path for ASCII with the general one.
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
		"a da": "a da", "zoe\u0308": "zo\u00eb", strings.Repeat("e\u0308", 128): strings.Repeat("\u00eb", 128), "\u1100\u1161": "\uac00",
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

// isIgnorable is Default_Ignorable_Code_Point, derived as in the head of its
// list in DerivedCoreProperties.txt.
func isIgnorable(r rune) bool {
	if !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Cf, unicode.Variation_Selector) {
		return false
	}
	return !unicode.In(r, unicode.White_Space, unicode.Prepended_Concatenation_Mark) &&
		(r < 0xfff9 || r > 0xfffb) && (r < 0x13430 || r > 0x13440)
}

// Every character is tried, inside an id and at its ends.
func TestCharactersThatCannotBeSeenAreRefused(t *testing.T) {
	t.Parallel()
	blank := []rune{0x2800, 0x13441, 0x13442, 0x16fe4, 0x1d159}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue // UTF-8 has no surrogates
		}
		seen := strconv.IsPrint(r) && !isIgnorable(r) && !slices.Contains(blank, r)
		requireAccepted(t, seen, "a"+string(r)+"b")
		for _, end := range []string{string(r) + "b", "a" + string(r), string(r)} {
			requireAccepted(t, seen && !unicode.IsSpace(r) && end != ".", end)
		}
	}
}

func requireAccepted(t *testing.T, want bool, id string) {
	t.Helper()
	if _, err := models.UserID(id); (err == nil) != want {
		require.Equal(t, want, err == nil, "%+q: %v", id, err)
	}
}

func seenAs(text string) string {
	text = strings.Map(func(r rune) rune {
		if isIgnorable(r) || unicode.Is(unicode.C, r) {
			return -1
		}
		return r
	}, text)
	return strings.TrimSpace(norm.NFC.String(text))
}

// If two accepted names appear identical to a person, they must be stored as
// one.
func TestTwoNamesThatLookTheSameAreOne(t *testing.T) {
	t.Parallel()
	parts := []string{
		"a", "b", "e", "\u0308", "\u0301", "\u00eb", "\u1100", "\u1161", "\uac00", "\u212b", "\u00c5", "A\u030a",
		" ", "\u00a0", "\u3000", "\u2003", "\t", "\u200b", "\u200d", "\u00ad", "\ufe0f", "\ufe00", "\U000e0100", "\u034f", "\u115f",
		"\u3164", "\uffa0", "\u17b5", "\u180e", "\u2060", "\u2065", "\ufeff", "\U000e0041", "\u0000", ".", "/",
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 6).Draw(t, name), "")
		}
		one := draw("one")
		other := draw("other")
		if rapid.Bool().Draw(t, "alike") { // else two texts are rarely identical to the eye
			at := rapid.IntRange(0, len([]rune(one))).Draw(t, "at")
			runes := []rune(norm.NFD.String(one))
			at = min(at, len(runes))
			other = string(runes[:at]) + rapid.SampledFrom(parts[12:]).Draw(t, "more") + string(runes[at:])
		}
		for name, parse := range map[string]func(string) (string, error){
			"user": models.UserID, "key": models.IdempotencyKey,
			"subject": func(text string) (string, error) { return models.Subject("device", text) },
		} {
			a, errA := parse(one)
			b, errB := parse(other)
			if errA == nil && errB == nil && seenAs(one) == seenAs(other) {
				require.Equal(t, a, b, "%s: %+q and %+q", name, one, other)
			}
			if errA == nil {
				again, err := parse(a)
				require.NoError(t, err)
				require.Equal(t, a, again, "what is kept is accepted")
				require.NoError(t, models.CheckUserID(a))
			}
		}
	})
}
