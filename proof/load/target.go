package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"dibs/client"
)

// ErrTarget means that the service did not do what a run needs.
var ErrTarget = errors.New("load: target")

const (
	claimTimeout = 10 * time.Second
	answerMax    = 64 << 10
)

// Target is a run's campaign at a running Dibs.
type Target struct {
	BaseURL    string // without a final slash
	Token      string // bearer token; "": none
	CampaignID string
	Users      int64 // claims are spread over so many users
	Keys       bool  // each claim has its own idempotency key
	Batch      bool  // claims share requests, by package client; needs Keys

	client  *http.Client
	side    *client.Client // for all but claims
	sharing *client.Client // with Batch
}

// Open creates the campaign; Close closes it.
func (t *Target) Open(ctx context.Context, connections int, stock int64) error {
	t.client = httpClient(connections)
	cfg := client.Config{
		BaseURL: t.BaseURL, Token: t.Token, Connections: connections, HTTP: t.client,
		// a retried answer can't be counted
		Attempts: 1, AttemptTimeout: claimTimeout,
	}
	var err error
	if t.Batch {
		t.sharing, err = client.New(cfg)
		if err != nil {
			return targetError(err)
		}
	}
	cfg.HTTP = httpClient(2)
	t.side, err = client.New(cfg)
	if err == nil {
		_, _, err = t.side.CreateCampaign(ctx, client.NewCampaign{ID: t.CampaignID, Kind: client.KindCoupon, Name: "load", Total: &stock})
	}
	return targetError(err)
}

func targetError(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrTarget, err)
	}
	return err
}

func httpClient(connections int) *http.Client {
	return &http.Client{Timeout: claimTimeout, Transport: &http.Transport{
		MaxIdleConns: connections, MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, DisableCompression: true,
		Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 30 * time.Second,
	}}
}

// Close closes the campaign and the connections.
func (t *Target) Close(ctx context.Context) error {
	_, err := t.side.CloseCampaign(ctx, t.CampaignID)
	t.client.CloseIdleConnections()
	t.side.Disconnect()
	return targetError(err)
}

// Stock reads the campaign's stock.
func (t *Target) Stock(ctx context.Context) (client.Stock, error) {
	s, err := t.side.Stock(ctx, t.CampaignID)
	return s, targetError(err)
}

// Claim is claim n of a run; from counts the claims of earlier
// runs against the same campaign.
func (t *Target) Claim(ctx context.Context, from, n int64) Answer {
	n += from
	user := "user-" + strconv.FormatInt(n%t.Users, 10)
	key := ""
	if t.Keys {
		key = t.CampaignID + "-" + strconv.FormatInt(n, 10)
	}
	if t.Batch {
		_, err := t.sharing.Claim(ctx, client.ClaimRequest{CampaignID: t.CampaignID, UserID: user, Key: key})
		return answerOfClient(err)
	}
	body := strings.NewReader(`{"user_id":"` + user + `"}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.BaseURL+"/v1/campaigns/"+t.CampaignID+"/claims", body)
	if err != nil {
		return Answer{Code: "bad_request", Fault: true}
	}
	req.Header["Content-Type"] = []string{"application/json"}
	if t.Token != "" {
		req.Header["Authorization"] = []string{"Bearer " + t.Token}
	}
	if t.Keys {
		req.Header["Idempotency-Key"] = []string{key}
	}
	res, err := t.client.Do(req)
	if err != nil {
		return noAnswer(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, answerMax))
	if err != nil {
		return noAnswer(err)
	}
	return answerOf(res.StatusCode, answer)
}

func noAnswer(err error) Answer {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return Answer{Code: "timeout", Fault: true, Unknown: true}
	}
	return Answer{Code: "no_answer", Fault: true, Unknown: true}
}

// answerOf treats a conflict as the campaign's refusal, and
// every other problem as a fault of the service or the caller.
func answerOf(status int, body []byte) Answer {
	if status == http.StatusCreated {
		return Answer{}
	}
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(body, &problem) // anything else has no code
	if problem.Code == "" {
		return Answer{Code: "status_" + strconv.Itoa(status), Fault: true, Unknown: true}
	}
	return Answer{
		Code: problem.Code, Fault: status != http.StatusConflict,
		Unknown: problem.Code == "outcome_unknown" || problem.Code == "internal",
	}
}

// answerOfClient is answerOf for package client's errors.
func answerOfClient(err error) Answer {
	if err == nil {
		return Answer{}
	}
	unknown := errors.Is(err, client.ErrOutcomeUnknown)
	if p, is := errors.AsType[*client.Problem](err); is {
		return Answer{Code: string(p.Code), Fault: p.Status != http.StatusConflict, Unknown: unknown}
	}
	a := noAnswer(err)
	a.Unknown = unknown
	return a
}
