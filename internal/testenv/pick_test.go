package testenv_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

func TestUniqueIDsFitEverywhereAndDiffer(t *testing.T) {
	t.Parallel()
	shape := regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,46}[a-z0-9]$`)
	t.Run("a name with spaces, /slashes and Ünïcode that goes on and on and on", func(t *testing.T) {
		a, b := testenv.UniqueID(t, "c"), testenv.UniqueID(t, "c")
		require.NotEqual(t, a, b)
		require.Regexp(t, shape, a)
		require.Regexp(t, shape, testenv.UniqueID(t, ""))
		require.Regexp(t, "^c-", a)
	})
}

func TestPickFollowsSoak(t *testing.T) {
	t.Setenv("DIBS_SOAK", "1")
	require.True(t, testenv.Soak())
	require.Equal(t, 200, testenv.Pick(20, 200))
	t.Setenv("DIBS_SOAK", "")
	require.False(t, testenv.Soak())
	require.Equal(t, 20, testenv.Pick(20, 200))
}
