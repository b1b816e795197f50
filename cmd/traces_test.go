package cmd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
)

func TestTracesThatCannotBeSentAreRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	got := run(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, "serve")
	require.Equal(t, cmd.ExitUsage, got.code)
	require.Contains(t, got.stderr, "OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf")
}
