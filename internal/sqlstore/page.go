package sqlstore

import (
	"context"
	"errors"
	"iter"
)

// PageSize is the row limit of a fetch of EachRow, and the most
// failures it returns.
const PageSize = 100

// ErrShort means that the database returned fewer rows than it
// has, or a second read lacks rows of the first. A proxy that
// limits results may do this.
var ErrShort = errors.New("sqlstore: the database returned fewer rows than there are, or some were deleted during the read: retry")

// Pages yields the rows of a query in key order, page by page.
// fetch returns any number of rows after a key; "" precedes all
// keys. Only an empty page ends it, because a short one may have
// been cut off in transit. A fetch error is yielded last.
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

// EachRow runs do for every row of a query; for fetch, see Pages. It
// continues after failures of do and returns them together, at most PageSize.
// It stops early when a page can't be read or ctx ends; in the latter case,
// ctx's cause is the only error.
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

// Itself is the key function for rows that are keys.
func Itself(key *string) string { return *key }
