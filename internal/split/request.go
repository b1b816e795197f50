package split

import (
	"errors"
	"fmt"
	"slices"
)

// ErrRequest is wrapped by every refusal.
var ErrRequest = errors.New("split: bad request")

// RequestError is a refusal. Field is the API's name of the
// refused field: count, amount, min, max or split. Reason is a
// phrase that follows the name. It wraps ErrRequest.
type RequestError struct{ Field, Reason string }

// Error reads "split: bad request: min: must be …".
func (e *RequestError) Error() string { return ErrRequest.Error() + ": " + e.Field + ": " + e.Reason }

// Unwrap returns ErrRequest.
func (e *RequestError) Unwrap() error { return ErrRequest }

func refuse(field, format string, args ...any) error {
	return &RequestError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Validate returns nil if the request can be met exactly, or a
// *RequestError with the first bad field.
func (r Request) Validate() error {
	switch {
	case !slices.Contains(Methods(), r.Method):
		return refuse("split", "must be double_mean, random_cut or even")
	case r.Count < 1 || r.Count > CountMax:
		return refuse("count", "must be 1 to %d", CountMax)
	case r.Amount < 1 || r.Amount > AmountMax:
		return refuse("amount", "must be 1 to %d", AmountMax)
	case r.Min < 0 || r.Min > AmountMax:
		return refuse("min", "must be 0 to %d", AmountMax)
	case r.Max < 0 || r.Max > AmountMax:
		return refuse("max", "must be 0 to %d", AmountMax)
	}
	return r.normal().validateSum()
}

// validateSum checks that the amount can be divided within the
// bounds. It divides where a product could overflow.
func (r Request) validateSum() error {
	n := int64(r.Count)
	switch {
	case r.Max < r.Min:
		return refuse("max", "must be at least min, which is %d", r.Min)
	case r.Min > r.Amount/n:
		return refuse("amount", "must be at least %d × min, which is %d", n, r.Min)
	case r.Max < (r.Amount+n-1)/n:
		return refuse("max", "must be at least %d: %d packets of at most %d make less than the amount", (r.Amount+n-1)/n, n, r.Max)
	}
	return nil
}
