package sqlstore

import (
	"context"
	"errors"
	"iter"
)

// PageSize is how many rows EachRow asks for at a time, and the most failures that it returns.
const PageSize = 100

// Pages yields the rows of a query, up to size at a time, in order of their keys. fetch reads the size rows that come after
// a key; "" comes before all keys. The first error of fetch is the last thing yielded.
func Pages[T any](size int, key func(*T) string, fetch func(after string) ([]T, error)) iter.Seq2[[]T, error] {
	return func(yield func([]T, error) bool) {
		for after := ""; ; {
			page, err := fetch(after)
			if !yield(page, err) || err != nil || len(page) < size {
				return
			}
			after = key(&page[len(page)-1])
		}
	}
}

// EachRow runs do for every row of a query whose fetch reads up to PageSize rows after a key. A failure of do does not stop
// it: failures are returned together at the end, PageSize at the most. It stops early when a page cannot be read, and when
// ctx ends; then why it ended is the only error.
func EachRow[T any](ctx context.Context, key func(*T) string, fetch func(after string) ([]T, error), do func(*T) error) error {
	var failed []error
	for page, err := range Pages(PageSize, key, fetch) {
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
