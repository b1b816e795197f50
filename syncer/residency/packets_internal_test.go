package residency

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

// Lot 1 had two packets from the reserve whose names are lost. What it has comes first; packets that no lot has only if MySQL has all
// claims; and what another lot has never.
func TestPlaces_Name(t *testing.T) {
	t.Parallel()
	order := []string{"a", "b", "c", "d"}
	cases := map[string]struct {
		places places
		ids    []string
		want   []string // nil: not known
	}{
		"what the taker has":      {places: places{had: map[string]int{"c": 1, "d": 1}}, ids: []string{"", ""}, want: []string{"c", "d"}},
		"less what is named":      {places: places{had: map[string]int{"c": 1, "d": 1}}, ids: []string{"d", ""}, want: []string{"d", "c"}},
		"that went elsewhere":     {places: places{had: map[string]int{"a": 1, "d": 1}, moved: map[string]int{"a": 2}}, ids: []string{"", ""}, want: []string{"d", "a"}},
		"no one's":                {places: places{had: map[string]int{"a": 2}, moved: map[string]int{"b": 2}, isWhole: true}, ids: []string{"", ""}, want: []string{"c", "d"}},
		"claims are on their way": {places: places{had: map[string]int{"a": 1}}, ids: []string{"", ""}},
		"another lot's":           {places: places{had: map[string]int{"a": 2, "b": 2, "c": 2}, isWhole: true}, ids: []string{"", ""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.places.order = order
			require.Equal(t, c.want != nil, c.places.name(models.ReserveLot, 1, c.ids))
			if c.want != nil {
				require.Equal(t, c.want, c.ids)
			}
		})
	}
}
