package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFieldOfInfoIsReadToItsLineEnd(t *testing.T) {
	t.Parallel()
	const info = "# Memory\r\nmaxmemory_policy:noeviction\r\nmaxmemory:0\r\nempty:\r\n# Persistence\r\naof_enabled:1\r\n"
	for name, want := range map[string]string{
		"maxmemory_policy": "noeviction", "maxmemory": "0", "aof_enabled": "1", "empty": "", "memory_policy": "", "none": "", "": "",
	} {
		require.Equal(t, want, infoField(info, name), name)
	}
}
