package wire

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"

	"dibs/models"
)

// buffers hold a body, and after it the answer. Those that grew beyond bufferKeep are let go.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

const bufferKeep = 64 << 10

func GetBuffer() *[]byte { return buffers.Get().(*[]byte) } //nolint:forcetypeassert // only these go in

func PutBuffer(b *[]byte) {
	if cap(*b) <= bufferKeep {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// readJSON reads a body of at most limit bytes into buf.
func ReadJSON(r *http.Request, buf []byte, limit int) ([]byte, *Problem) {
	if p := checkContentType(r.Header); p != nil {
		return buf, p
	}
	if r.ContentLength > int64(limit) {
		return buf, tooLarge(limit)
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if len(buf) > limit {
			return buf, tooLarge(limit)
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, &Problem{Code: CodeMalformed, Detail: "The body did not arrive whole and in time.", HangUp: true}
		}
	}
}

// noBody refuses a body where none is taken; {} and null say nothing and are as good as none.
func NoBody(r *http.Request) *Problem {
	if r.ContentLength == 0 {
		return nil
	}
	body, p := ReadJSON(r, nil, emptyBodyMax)
	if p != nil {
		return p
	}
	if said := string(bytes.TrimSpace(body)); said == "" || said == "null" {
		return nil
	}
	return ScanObject(body, nil, nil)
}

// emptyBodyMax leaves a body that says nothing room for blanks, and the refusal of one that says something room for its name.
const emptyBodyMax = 1 << 10

func tooLarge(limit int) *Problem {
	return &Problem{Code: CodeTooLarge, Detail: "The body is larger than " + strconv.Itoa(limit) + " bytes.", HangUp: true}
}

func checkContentType(h http.Header) *Problem {
	values := h["Content-Type"]
	if len(values) == 0 || values[0] == JSONContentType[0] {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(values[0]); err == nil && kind == JSONContentType[0] {
		return nil
	}
	return Malformed("Content-Type must be application/json.")
}

func IdempotencyKey(h http.Header) (string, *Problem) {
	values := h["Idempotency-Key"]
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		if err := models.CheckIdempotencyKey(values[0]); err != nil {
			return "", Invalid("Idempotency-Key", IDReason(err))
		}
		return values[0], nil
	default:
		return "", Invalid("Idempotency-Key", "is there twice")
	}
}

// replayedHeader marks the first answer of a key, given again.
const ReplayedHeader = "Idempotent-Replayed"

var ReplayedTrue = []string{"true"}
