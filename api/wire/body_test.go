package wire_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"dibs/api/wire"
)

// post is a request with or without a known length.
func post(body io.Reader, known bool) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	if !known {
		r.ContentLength = -1
	}
	return r
}

func TestReadBody_ReadsUpToItsLimit(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		for size, code := range map[int]wire.Code{0: "", 1: "", 4096: "", 4097: wire.CodeTooLarge, 1 << 20: wire.CodeTooLarge} {
			var buf bytes.Buffer
			body := strings.Repeat("x", size)
			p := wire.ReadBody(post(iotest.OneByteReader(strings.NewReader(body)), false), &buf, 4096)
			if known {
				buf.Reset()
				p = wire.ReadBody(post(strings.NewReader(body), true), &buf, 4096)
			}
			if code == "" {
				require.Nil(t, p)
				require.Equal(t, body, buf.String())
				continue
			}
			require.Equal(t, code, p.Code)
			require.True(t, p.HangUp, "the rest is not read")
			require.LessOrEqual(t, buf.Len(), 4097)
		}
	}
	var buf bytes.Buffer
	p := wire.ReadBody(post(io.MultiReader(strings.NewReader(`{"user_id":`), iotest.ErrReader(errors.New("cut"))), false), &buf, 4096)
	require.Equal(t, wire.CodeMalformed, p.Code, "it breaks off")
	require.True(t, p.HangUp)
}

func TestReadBody_TakesJSONAlone(t *testing.T) {
	t.Parallel()
	for kind, ok := range map[string]bool{
		"": true, "application/json": true, "Application/JSON ; charset=utf-8": true, "application/problem+json": false, "text/json": false,
		"application/json; charset=UTF-8": true, "application/json; charset=utf-16": false, "application/json;charset=iso-8859-1": false,
		"application/json; charset": false, "*/*": false,
	} {
		r := post(strings.NewReader(`{}`), true)
		if kind != "" {
			r.Header.Set("Content-Type", kind)
		}
		var buf bytes.Buffer
		p := wire.ReadBody(r, &buf, 10)
		require.Equal(t, ok, p == nil, "%q %v", kind, p)
		require.Equal(t, ok, buf.Len() > 0)
	}
}
