package sqlstore

import (
	"errors"
	"fmt"
)

// ErrConfig is wrapped by every refusal of a Config, of this package and of those that build on it. The message names the field.
var ErrConfig = errors.New("bad configuration")

// OrDefault sets a field that is not set. cmp.Or does the same with less.
func OrDefault[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}

// Required is the refusal of a configuration that lacks a field.
func Required(field string) error { return fmt.Errorf("%w: %s is required", ErrConfig, field) }
