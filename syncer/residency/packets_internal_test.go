package residency

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Lot 1 got two packets from the reserve whose names are lost. They are what it has and no row names, if these are two, and if no shard ever
// gave a packet back.
func TestPlaces_Name(t *testing.T) {
	t.Parallel()
	one := func(ids ...string) map[string]int {
		had := map[string]int{"e": 2}
		for _, id := range ids {
			had[id] = 1
		}
		return had
	}
	cases := map[string]struct {
		places places
		ids    []string
		want   []string // nil: not known
	}{
		"what the taker has":         {places: places{had: one("c", "d")}, ids: []string{"", ""}, want: []string{"c", "d"}},
		"less what is named":         {places: places{had: one("c", "d")}, ids: []string{"d", ""}, want: []string{"d", "c"}},
		"less what rows name":        {places: places{had: one("a", "c", "d"), moved: map[string]int{"a": 2}}, ids: []string{"", ""}, want: []string{"c", "d"}},
		"a claim is on its way":      {places: places{had: one("a")}, ids: []string{"", ""}},
		"it got another one since":   {places: places{had: one("a", "b", "c")}, ids: []string{"", ""}},
		"a shard gave a packet back": {places: places{had: one("c", "d"), isMixed: true}, ids: []string{"", ""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.places.order = []string{"a", "b", "c", "d", "e"}
			require.Equal(t, c.want != nil, c.places.name(1, c.ids))
			if c.want != nil {
				require.Equal(t, c.want, c.ids)
			}
		})
	}
}
