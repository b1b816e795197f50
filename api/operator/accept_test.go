package operator

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWantsCSV(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "text/csv": true, "Text/CSV; charset=utf-8": true, "text/csv;q=0": false, "text/csv;q=0.0, */*": false, "application/json": false,
		"*/*": false, "application/json, text/csv;q=0.5": false, "application/json;q=0.4, text/csv;Q=0.5": true, "text/csvx": false,
		"text/csv, application/json": true, "text/csv;q=x": false,
	} {
		require.Equal(t, want, wantsCSV(http.Header{"Accept": {accept}}), accept)
	}
}
