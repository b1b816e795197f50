package sqlstore

import (
	"context"
	"errors"
	"iter"
)

// PageSize is how many rows a fetch of EachRow asks for, and the most failures
// that it returns.
const PageSize = 100

// ErrShort says that the database returned fewer rows than there are, as a
// proxy may that bounds answers, or that a second read lacks rows of the first.
var ErrShort = errors.New("sqlstore: the database returned fewer rows than there are, or some were deleted meanwhile: ask again")

// Pages yields the rows of a query, a page at a time, in order of their keys.
// fetch reads the rows that come after a key, up to as many as it likes; ""
// comes before all keys. Only an empty page is the end: a short one may have
// been cut off on its way. The first error of fetch is the last thing yielded.
func Pages[T any](key func(*T) string, fetch func(after string) ([]T, error)) iter.Seq2[[]T, error] {
	return func(yield func([]T, error) bool) {
		for after := ""; ; {
			page, err := fetch(after)
			if err == nil && len(page) == 0 || !yield(page, err) || err != nil {
				return
			}
			after = key(&page[len(page)-1])
		}
	}
}

// EachRow runs do for every row of a query whose fetch reads rows after a key,
// see Pages. A failure of do does not stop it: failures are returned together
// at the end, PageSize at the most. It stops early when a page cannot be read,
// and when ctx ends; then why it ended is the only error.
func EachRow[T any](ctx context.Context, key func(*T) string, fetch func(after string) ([]T, error), do func(*T) error) error {
	var failed []error
	for page, err := range Pages(key, fetch) {
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		for i := range page {
			err := do(&page[i])
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil && len(failed) < PageSize {
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(failed...)
}

// Itself is the key of rows that are keys.
func Itself(key *string) string { return *key }
