package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// LiveStock is a campaign's stock at one moment, in units.
type LiveStock struct {
	CampaignID   string             `json:"campaign_id"`
	At           time.Time          `json:"at"`
	Status       Status             `json:"status"`
	Total        int64              `json:"total"`
	Remaining    int64              `json:"remaining"`
	Claimed      int64              `json:"claimed"`
	Synced       int64              `json:"synced"`  // of these, in MySQL
	Backlog      int64              `json:"backlog"` // of these, on their way to MySQL
	AcceptedPerS float64            `json:"accepted_per_s"`
	RefusedPerS  map[string]float64 `json:"refused_per_s"` // by code
}

const liveLineMax = 1 << 20

// Watch iterates over a campaign's live stock, once a second, until ctx
// ends; campaignID "" is all active campaigns. It ends after an error, such
// as a broken connection, or a server behind the service that doesn't
// answer. Then call it again. Refusals: ErrCampaignNotFound.
func (c *Client) Watch(ctx context.Context, campaignID string) iter.Seq2[LiveStock, error] {
	path := "/v1/watch"
	if campaignID != "" {
		path = campaignPath(campaignID) + "/watch"
	}
	return func(yield func(LiveStock, error) bool) {
		res, err := c.openStream(ctx, path)
		if err != nil {
			yield(LiveStock{}, err)
			return
		}
		defer func() { _ = res.Body.Close() }()
		err = readEvents(res.Body, func(name string, data []byte) (bool, error) {
			if name == "problem" {
				var p problemJSON
				if err := json.Unmarshal(data, &p); err != nil {
					return false, fmt.Errorf("%w: %w", ErrAnswer, err)
				}
				p.Status = http.StatusServiceUnavailable
				return false, p.problem()
			}
			var stock LiveStock
			if err := json.Unmarshal(data, &stock); err != nil {
				return false, fmt.Errorf("%w: %w", ErrAnswer, err)
			}
			return yield(stock, nil), nil
		})
		if ctx.Err() == nil && err != nil {
			yield(LiveStock{}, err)
		}
	}
}

func (c *Client) openStream(ctx context.Context, path string) (*http.Response, error) {
	req, err := c.request(ctx, &call{method: http.MethodGet, path: path, query: url.Values{}}, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(res.Body, answerMax)) // a part is good enough
	return nil, problemOf(res, text)
}

// readEvents calls each for every event until it returns false or an error,
// or the stream ends, which is an error.
func readEvents(r io.Reader, each func(name string, data []byte) (goOn bool, err error)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, liveLineMax)
	name := ""
	for lines.Scan() {
		line := lines.Bytes()
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			goOn, err := each(name, value)
			if err != nil || !goOn {
				return err
			}
			name = ""
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return fmt.Errorf("client: the stream ended: %w", io.ErrUnexpectedEOF)
}
