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

// ErrUnsent means that no byte of a request was sent.
var ErrUnsent = errors.New("crowd: not sent")

// answerMax limits the bytes read of a reply.
const answerMax = 4 << 20

// Response is the reply to a request.
type Response struct {
	Status   int
	Replayed bool
	Body     []byte
	// the last of several replies: net/http resent after a
	// kept-alive connection broke
	Repeated bool
}

// Call sends one request and returns its reply. A non-nil body
// is sent as JSON. token and key are "" for none. The error
// wraps ErrUnsent if nothing was sent.
func Call(ctx context.Context, client *http.Client, method, url, token, key string, body any) (Response, error) {
	var encoded []byte
	if body != nil {
		var err error
		encoded, err = json.Marshal(body)
		if err != nil {
			return Response{}, fmt.Errorf("crowd: %w", err)
		}
	}
	// counted here: net/http resends by itself and returns only the
	// last error
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

// CodeOf returns a refusal's code.
func CodeOf(body []byte) string {
	var problem struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(body, &problem); err != nil || problem.Code == "" {
		return fmt.Sprintf("not a problem: %.200s", body)
	}
	return problem.Code
}
