package crowd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// ErrUnsent says that no byte of a request was sent.
var ErrUnsent = errors.New("crowd: not sent")

// answerMax bounds what is read of one answer, in bytes.
const answerMax = 4 << 20

// Response is the answer to one request.
type Response struct {
	Status   int
	Replayed bool
	Body     []byte
	// net/http sent the request more than once, as a kept connection broke, and
	// this is the last answer
	Repeated bool
}

// Call sends one request, with a body as JSON unless it is nil, and returns the
// answer. token and key are "" for none. The error wraps ErrUnsent when nothing
// was sent.
func Call(ctx context.Context, client *http.Client, method, url, token, key string, body any) (Response, error) {
	var encoded []byte
	if body != nil {
		var err error
		encoded, err = json.Marshal(body)
		if err != nil {
			return Response{}, fmt.Errorf("crowd: %w", err)
		}
	}
	// the error does not say so: net/http sends again by itself and returns the
	// error of the last try
	var sent atomic.Int32
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }})
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(encoded))
	if err != nil {
		return Response{}, fmt.Errorf("crowd: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := client.Do(req)
	switch {
	case err != nil && sent.Load() == 0:
		return Response{}, fmt.Errorf("%w: %w", ErrUnsent, err)
	case err != nil:
		return Response{}, fmt.Errorf("crowd: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	read, err := io.ReadAll(io.LimitReader(res.Body, answerMax))
	if err != nil {
		return Response{}, fmt.Errorf("crowd: %w", err)
	}
	return Response{
		Status: res.StatusCode, Replayed: res.Header.Get("Idempotent-Replayed") == "true", Body: read, Repeated: sent.Load() > 1,
	}, nil
}

// CodeOf is the code of a refusal.
func CodeOf(body []byte) string {
	var problem struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(body, &problem); err != nil || problem.Code == "" {
		return fmt.Sprintf("not a problem: %.200s", body)
	}
	return problem.Code
}
