package wire

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"dibs/models"
)

// buffers are reused for a body, then its answer. Those over bufferKeep are
// dropped.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const bufferKeep = 64 << 10

// GetBuffer returns an empty buffer. Return it with PutBuffer.
func GetBuffer() *bytes.Buffer { return buffers.Get().(*bytes.Buffer) } //nolint:forcetypeassert // only these go in

// PutBuffer is called once, after the last use of the buffer's bytes.
func PutBuffer(b *bytes.Buffer) {
	if b.Cap() <= bufferKeep {
		b.Reset()
		buffers.Put(b)
	}
}

// ReadBody reads a JSON body of at most limit bytes into buf. It doesn't
// parse it.
func ReadBody(r *http.Request, buf *bytes.Buffer, limit int) *Problem {
	if p := checkContentType(r.Header); p != nil {
		return p
	}
	if r.ContentLength > int64(limit) {
		return tooLarge(limit)
	}
	_, err := buf.ReadFrom(io.LimitReader(r.Body, int64(limit)+1))
	switch {
	case buf.Len() > limit:
		return tooLarge(limit)
	case err != nil:
		return &Problem{Code: CodeMalformed, Detail: "The body did not arrive whole and in time. Send it again.", HangUp: true}
	}
	return nil
}

func tooLarge(limit int) *Problem {
	return &Problem{Code: CodeTooLarge, Detail: "The body is larger than " + strconv.Itoa(limit) + " bytes.", HangUp: true}
}

// emptyBodyMax bounds the body of a request that takes none. It allows
// blanks, and an unknown field to name in the refusal.
const emptyBodyMax = 1 << 10

// NoBody refuses a body where none is accepted. {} and null are allowed.
func NoBody(r *http.Request) *Problem {
	if r.ContentLength == 0 {
		return nil
	}
	var body bytes.Buffer
	if p := ReadBody(r, &body, emptyBodyMax); p != nil {
		return p
	}
	if text := string(bytes.TrimSpace(body.Bytes())); text == "" || text == "null" {
		return nil
	}
	return ReadObject(body.Bytes(), nil)
}

func checkContentType(h http.Header) *Problem {
	if encodings := h["Content-Encoding"]; len(encodings) > 0 && encodings[0] != "" && encodings[0] != "identity" {
		return &Problem{Code: CodeUnsupportedMediaType, Detail: "Content-Encoding is not taken: send the body as it is."}
	}
	values := h["Content-Type"]
	if len(values) == 0 || values[0] == JSONContentType[0] {
		return nil
	}
	kind, params, err := mime.ParseMediaType(values[0])
	if err == nil && kind == JSONContentType[0] && isUTF8(params["charset"]) {
		return nil
	}
	return &Problem{Code: CodeUnsupportedMediaType, Detail: "Content-Type must be application/json, in UTF-8."}
}

// isUTF8 reports whether text in this charset is valid as UTF-8.
func isUTF8(charset string) bool {
	return slices.Contains([]string{"", "utf-8", "utf8", "us-ascii"}, strings.ToLower(charset))
}

const keyHeader = "Idempotency-Key"

// IdempotencyKey is the request's key; "" without one.
func IdempotencyKey(h http.Header) (string, *Problem) {
	values := h[keyHeader]
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		key, err := models.IdempotencyKey(values[0])
		return key, InvalidID(keyHeader, err)
	default:
		return "", Invalid(keyHeader, "is there twice")
	}
}

// NoIdempotencyKey refuses a key where it would be ignored: its sender
// relies on it. reason follows the header's name.
func NoIdempotencyKey(h http.Header, reason string) *Problem {
	if len(h[keyHeader]) == 0 {
		return nil
	}
	return Invalid(keyHeader, reason)
}

// RequiredKey refuses a request without a key. reason follows the header's
// name.
func RequiredKey(key, reason string) *Problem {
	if key != "" {
		return nil
	}
	return Invalid(keyHeader, reason)
}

const replayedHeader = "Idempotent-Replayed"

var replayedTrue = []string{"true"}

// SetReplayed marks an answer as a replay of the key's first answer.
func SetReplayed(h http.Header) { h[replayedHeader] = replayedTrue }
