package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"dibs/internal/sqlstore"

	"github.com/stretchr/testify/require"
)

// table has n rows that are read page by page; reads counts the pages.
type table struct {
	n, size, reads int
	broken         int // index of the failing read; 0 is none
}

var errRead = errors.New("cannot read")

func (t *table) fetch(after string) (page []string, err error) {
	if t.reads++; t.reads == t.broken {
		return nil, errRead
	}
	for i := 0; i < t.n && len(page) < t.size; i++ {
		if key := fmt.Sprintf("%04d", i); key > after {
			page = append(page, key)
		}
	}
	return page, nil
}

func TestPages_YieldsEachRowOnceAndStopsWhenAsked(t *testing.T) {
	t.Parallel()
	for n, reads := range map[int]int{0: 1, 2: 2, 3: 2, 7: 4} {
		rows := &table{n: n, size: 3}
		seen := map[string]bool{}
		for page, err := range sqlstore.Pages(sqlstore.Itself, rows.fetch) {
			require.NoError(t, err)
			for _, key := range page {
				require.False(t, seen[key])
				seen[key] = true
			}
		}
		require.Len(t, seen, n)
		require.Equal(t, reads, rows.reads)
	}
	rows := &table{n: 9, size: 3, broken: 2}
	var last error
	for _, err := range sqlstore.Pages(sqlstore.Itself, rows.fetch) {
		last = err
	}
	require.ErrorIs(t, last, errRead)
	require.Equal(t, 2, rows.reads, "no page behind the one that failed")
}

func TestEachRow_StopsWhenAPageCannotBeReadAndWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	rows := &table{n: 3 * sqlstore.PageSize, size: sqlstore.PageSize, broken: 2}
	odd, done := errors.New("odd"), 0
	err := sqlstore.EachRow(t.Context(), sqlstore.Itself, rows.fetch, func(*string) error { done++; return odd })
	require.ErrorIs(t, err, errRead)
	require.ErrorIs(t, err, odd, "what failed before is told, too")
	require.Equal(t, sqlstore.PageSize, done)

	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	rows, done = &table{n: 3 * sqlstore.PageSize, size: sqlstore.PageSize}, 0
	err = sqlstore.EachRow(ctx, sqlstore.Itself, rows.fetch, func(*string) error {
		done++
		cancel(stopped)
		return odd
	})
	require.Equal(t, stopped, err)
	require.Equal(t, 1, done)
}
