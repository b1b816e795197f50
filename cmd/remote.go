package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"dibs/config"
)

const (
	remoteTimeout   = 30 * time.Second
	remoteAnswerMax = 64 << 20 // bytes
)

// errRemote is wrapped by what an API refuses; the message has its code.
var errRemote = errors.New("cmd: the API refused")

// callAPI sends a request without a body to the API of DIBS_URL, and reads the answer into a value unless it is nil.
func callAPI(ctx context.Context, cfg *config.Config, method, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(cfg.URL, "/")+path, nil)
	if err != nil {
		return fmt.Errorf("%w: %sURL: %w", config.ErrConfig, config.Prefix, err)
	}
	if cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+cfg.Token)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	body, err := io.ReadAll(io.LimitReader(answer.Body, remoteAnswerMax))
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	if answer.StatusCode > 299 {
		var problem struct {
			Code   string `json:"code"`
			Detail string `json:"detail"`
		}
		if json.Unmarshal(body, &problem) != nil || problem.Code == "" {
			problem.Code = answer.Status
		}
		return fmt.Errorf("%w: %s: %s", errRemote, problem.Code, problem.Detail)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("cmd: %s is no Dibs: %w", cfg.URL, err)
	}
	return nil
}
