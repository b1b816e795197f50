package models

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A change can only hold fields that the definition has. Otherwise the change
// would be lost.
func TestADefinitionHoldsWhateverCanBeChanged(t *testing.T) {
	t.Parallel()
	var c Campaign
	at := time.Unix(1, 0)
	values := map[reflect.Type]any{
		reflect.TypeFor[Limits](): Limits{{By: "device", Per: PerDay, Max: 1}}, reflect.TypeFor[int64](): int64(7), reflect.TypeFor[*time.Time](): &at, reflect.TypeFor[Status](): StatusPaused, reflect.TypeFor[string](): "text",
	}
	var changed []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Change]()) {
		if field.Type.Kind() == reflect.Pointer {
			changed = append(changed, field.Name)
		}
	}
	require.Contains(t, changed, "PerUserPerDay")
	for _, name := range changed {
		field := reflect.ValueOf(&c).Elem().FieldByName(name)
		require.True(t, field.IsValid(), "no field %s of Campaign", name)
		field.Set(reflect.ValueOf(values[field.Type()]))
	}
	definition := c.WithoutBooks()
	for _, name := range changed {
		require.False(t, reflect.ValueOf(definition).FieldByName(name).IsZero(), "%s is missing", name)
	}
	c.Claimed, c.Version = 1, 2
	require.Equal(t, definition, c.WithoutBooks(), "the books are no part of it")
}
