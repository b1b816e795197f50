package arch_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/arch"
)

func TestConsumerUsesOnlyFewNamesOfLua(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../consumer/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		require.Empty(t, arch.ConsumerViolations(file), path)
	}
}

// The control of TestConsumerUsesOnlyFewNamesOfLua.
func TestPlantedWordIsFound(t *testing.T) {
	t.Parallel()
	for source, found := range map[string]int{
		`package consumer; import "dibs/lua"; var k = lua.StreamKey(0)`:                                                0,
		`package consumer; import "dibs/lua"; var s, l = lua.State{}, lua.ErrAbsent`:                                   2,
		`package consumer; import l "dibs/lua"; var s, t = l.Load{}, l.ErrAbsent`:                                      2,
		`package consumer; import "dibs/lua"; func f(r struct{ scripts *lua.Scripts }) { r.scripts.Claim() }`:          1,
		`package consumer; import "dibs/lua"; func f(r struct{ scripts *lua.Scripts }) { r.scripts.NextGeneration() }`: 0,
		`package consumer; import "other/lua"; var s = lua.State{}`:                                                    0,
		`package consumer; var lua struct{ State int }; var s = lua.State`:                                             0,
		`package consumer; import "dibs/models"; var e = models.DecodeEvent(nil)`:                                      0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "planted.go", source, 0)
		require.NoError(t, err)
		require.Len(t, arch.ConsumerViolations(file), found, source)
	}
}
