package api_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
)

// A client must learn of a shutdown from an answer. Otherwise its
// connection closes under its next request.
func TestAStopFirstSaysGoodbyeOnEveryConnection(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	srv, err := api.New(api.Config{Logger: slog.New(slog.NewTextHandler(&said, nil))}, apitest.NewFake().Deps())
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, ln) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) *http.Response { // reads and closes the body
		res, err := client.Get("http://" + ln.Addr().String() + path)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, res.Body)
		require.NoError(t, res.Body.Close())
		return res
	}
	require.False(t, get("/healthz").Close)
	require.Equal(t, http.StatusOK, get("/readyz").StatusCode)

	stop()
	require.Eventually(t, func() bool { return get("/readyz").StatusCode == http.StatusServiceUnavailable }, time.Minute, time.Millisecond)
	res := get("/healthz")
	require.Equal(t, http.StatusOK, res.StatusCode, "it still answers")
	require.True(t, res.Close, "and closes the connection with the answer")
	require.NoError(t, <-served)
	require.Contains(t, said.String(), "every request that was taken is answered")
}
