package lua_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/lua"
)

func TestNextID(t *testing.T) {
	t.Parallel()
	require.Equal(t, lua.EntryID{Ms: 5, Seq: 8}, lua.EntryID{Ms: 5, Seq: 7}.Next())
	require.Equal(t, lua.EntryID{Ms: 6}, lua.EntryID{Ms: 5, Seq: math.MaxUint64}.Next())
}
