package webhooks

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
)

const (
	attemptTimeout = 15 * time.Second // from the dial to the end of the reply
	dialTimeout    = 5 * time.Second
	// bytes read of a reply, so that its connection can be reused.
	answerMax       = 64 << 10
	answerHeaderMax = 16 << 10
	idleTimeout     = 90 * time.Second
	sendsMax        = 128 // concurrent, to one endpoint
)

// Gap reports that preceding events of the campaign were given
// up. They are parked, and may be delivered later.
type Gap struct {
	Events  int64  `json:"events"`
	FirstID string `json:"first_id"`
	LastID  string `json:"last_id"`
}

// Body is the body of a delivery, in the form proposed by
// Standard Webhooks: an event as in the claim stream.
type Body struct {
	Type      event.Type      `json:"type"`
	Timestamp models.Time     `json:"timestamp"` // of the event
	Data      json.RawMessage `json:"data"`      // the event
	Gap       *Gap            `json:"gap,omitempty"`
}

// Batch is the body for an endpoint that takes batches: events
// of one campaign, in order.
type Batch struct {
	Events []Body `json:"events"`
}

// messageOf encodes events. Its id is that of the first event,
// which also carries the gap.
func (e *Endpoint) messageOf(events []stored.WebhookEvent, gap *Gap) (id string, body []byte, err error) {
	all := Batch{Events: make([]Body, len(events))}
	for i := range events {
		it := &events[i]
		all.Events[i] = Body{Type: it.Type, Timestamp: models.NewTime(it.At), Data: it.Payload}
	}
	all.Events[0].Gap = gap
	if e.Batch > 0 {
		body, err = json.Marshal(all)
	} else {
		body, err = json.Marshal(all.Events[0])
	}
	return events[0].EventID, body, err
}

// TestType is the type of Test's message. No event has it.
const TestType event.Type = "webhook.test"

// Test sends an endpoint a signed message that is no event.
// private and proxy are as in Config.
func Test(ctx context.Context, e *Endpoint, private bool, proxy func(*url.URL) (*url.URL, error)) error {
	now := time.Now()
	one := stored.WebhookEvent{EventID: "test-" + rand.Text(), Type: TestType, At: now}
	payload, err := json.Marshal(map[string]any{"v": event.Version, "type": TestType, "id": one.EventID, "at": models.NewTime(now)})
	if err != nil {
		return err
	}
	one.Payload = payload
	id, body, err := e.messageOf([]stored.WebhookEvent{one}, nil)
	if err != nil {
		return err
	}
	return newSender(private, proxy).send(ctx, e, id, body)
}

// Sign returns a message's signature by one key, in the form of
// the header webhook-signature.
func Sign(key []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%d.", id, at.Unix()) // a hash never fails
	_, _ = mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

type sender struct {
	outside, inside *http.Client // for remote endpoints, and on this machine

	proxy func(*url.URL) (*url.URL, error) // of a remote endpoint; nil: none
	// dials the proxy, which checks the addresses behind it
	proxied *http.Client
}

func newSender(private bool, proxy func(*url.URL) (*url.URL, error)) *sender {
	proxied := newTransport(&net.Dialer{Timeout: dialTimeout})
	proxied.Proxy = func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
	return &sender{outside: newClient(private), inside: newClient(true), proxy: proxy, proxied: client(proxied)}
}

func (s *sender) to(e *Endpoint, at *url.URL) *http.Client {
	if e.loopback {
		return s.inside
	}
	if s.proxy != nil {
		if by, err := s.proxy(at); by != nil || err != nil {
			return s.proxied
		}
	}
	return s.outside
}

// newClient makes a client that connects only to addresses
// allowed by mayDial, whatever a name resolves to.
func newClient(private bool) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return mayDial(target.Addr(), private)
	}}
	return client(newTransport(dialer))
}

func newTransport(dialer *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: sendsMax,
		IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: answerHeaderMax, DisableCompression: true,
	}
}

// client makes a client that follows no redirect.
func client(transport *http.Transport) *http.Client {
	return &http.Client{
		Timeout: attemptTimeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// errAddress is wrapped by refusals of an address.
var errAddress = errors.New("webhooks: the address is refused")

// neverDialed are ranges without receivers: link-local ones,
// with the metadata services of clouds, and those that are
// reserved or translate to another address.
//
//nolint:gochecknoglobals // nothing writes to it
var neverDialed = prefixes("0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "224.0.0.0/3", "::/128", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
	"fe80::/10", "fec0::/10", "ff00::/8")

// privateRanges are dialed if DIBS_WEBHOOKS_PRIVATE allows it.
//
//nolint:gochecknoglobals // nothing writes to it
var privateRanges = prefixes("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7")

func prefixes(list ...string) (all []netip.Prefix) {
	for _, text := range list {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func mayDial(addr netip.Addr, private bool) error {
	addr = addr.Unmap().WithZone("")
	for _, p := range neverDialed {
		if p.Contains(addr) {
			return fmt.Errorf("%w: %s", errAddress, addr)
		}
	}
	for _, p := range privateRanges {
		if !private && p.Contains(addr) {
			return fmt.Errorf("%w: %s is private; DIBS_WEBHOOKS_PRIVATE=1 allows it", errAddress, addr)
		}
	}
	return nil
}

// send posts events to an endpoint. It returns nil on any 2xx.
func (s *sender) send(ctx context.Context, e *Endpoint, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	now := time.Now()
	signatures := make([]string, len(e.keys))
	for i, key := range e.keys {
		signatures[i] = Sign(key, id, now, body)
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"dibs"}, "Webhook-Id": {id},
		"Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)}, "Webhook-Signature": {strings.Join(signatures, " ")},
	}
	answer, err := s.to(e, req.URL).Do(req)
	if failed, is := errors.AsType[*url.Error](err); is {
		return fmt.Errorf("webhooks: %w", failed.Err) // the URL may contain a secret
	}
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, answerMax)) // only the status matters
	_ = answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("webhooks: the endpoint answered %d", answer.StatusCode)
	}
	return nil
}
