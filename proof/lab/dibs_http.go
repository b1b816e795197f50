package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
)

// ErrDibs says that Dibs gave an answer that the lab did not expect.
var ErrDibs = errors.New("lab: unexpected answer of dibs")

// dibsHTTP is Dibs as storefronts use it: `dibs serve` in a process of its own, one claim a request.
type dibsHTTP struct {
	Env

	wire *wire
	path string
	asks atomic.Uint64
	who  string // makes keys of this process unlike those of others
}

func dibsHTTPStrategy() Entry {
	return Entry{
		Name: "dibs-http", Title: "Dibs, over HTTP", Flaw: "the books follow, some milliseconds behind",
		Sound: true, DieAt: StepWritten,
		New: func(env Env) (Strategy, error) {
			w, err := newWire(env.Endpoint, env.Connections)
			if err != nil {
				return nil, err
			}
			return &dibsHTTP{Env: env, wire: w, path: "/v1/campaigns/" + env.Campaign.ID + "/claims", who: strconv.Itoa(os.Getpid())}, nil
		},
		Serve: serveDibsHTTP,
	}
}

// Prepare creates the campaign.
func (s *dibsHTTP) Prepare(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{
		"id": s.Campaign.ID, "kind": "coupon", "total": s.Campaign.Units, "per_user": s.Campaign.PerUser,
	})
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Endpoint+"/v1/campaigns", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return s.call(req, http.StatusCreated, nil)
}

// call is for the few requests beside the claims.
func (*dibsHTTP) call(req *http.Request, status int, into any) error {
	client := &http.Client{Timeout: ioTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, answerMax))
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if res.StatusCode != status {
		return fmt.Errorf("%w: %s: %s", ErrDibs, res.Status, body)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

// Claim posts one claim with a key of its own.
func (s *dibsHTTP) Claim(ctx context.Context, user string) (Outcome, error) {
	body := strconv.AppendQuote([]byte(`{"user_id":`), user) // the lab's users are plain letters and digits
	body = append(body, '}')
	key := s.who + "-" + strconv.FormatUint(s.asks.Add(1), 10)
	status, answer, err := s.wire.post(ctx, s.path, key, body)
	if err != nil {
		return 0, err
	}
	if status == http.StatusCreated {
		return Claimed, s.at(StepWritten)
	}
	return refusalOf(status, answer)
}

// refusalOf reads a problem in the words of the lab.
func refusalOf(status int, answer []byte) (Outcome, error) {
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(answer, &problem) // what is no problem has no code
	switch problem.Code {
	case "sold_out":
		return SoldOut, nil
	case "user_limit":
		return OverLimit, nil
	case "unavailable":
		return Busy, nil
	default:
		return 0, fmt.Errorf("%w: %d: %.200s", ErrDibs, status, answer)
	}
}

// Settle waits until nothing is on its way to MySQL.
func (s *dibsHTTP) Settle(ctx context.Context) error {
	return settle(ctx, func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/v1/campaigns/"+s.Campaign.ID+"/stock", nil)
		if err != nil {
			return false, fmt.Errorf("lab: %w", err)
		}
		var stock struct {
			Backlog int64 `json:"backlog"`
		}
		err = s.call(req, http.StatusOK, &stock)
		return stock.Backlog == 0, err
	})
}

// Close closes the connections.
func (s *dibsHTTP) Close() error {
	s.wire.close()
	return nil
}
