package webhooks

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"dibs/internal/reread"
	"dibs/models"
	"dibs/models/event"
)

// ErrConfig is wrapped by every refusal of the endpoints file.
// The message names the endpoint and the field.
var ErrConfig = errors.New("webhooks: bad endpoints file")

// Limits of the endpoints file.
const (
	EndpointsMax = 32
	SecretsMax   = 4
	CampaignsMax = 1000
	BatchMax     = 100
	fileMax      = 1 << 20 // bytes
	secretMin    = 24      // bytes, by Standard Webhooks
	secretMax    = 64
	secretPrefix = "whsec_"
)

// Endpoint is a receiver of events.
type Endpoint struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// "whsec_" and the key in base64; all sign each delivery, so
	// that a receiver can rotate keys
	Secrets   []string     `json:"secrets"`
	Events    []event.Type `json:"events"`
	Campaigns []string     `json:"campaigns"` // empty: all
	// most events of a delivery, sent as a list; 0: one event, sent alone
	Batch int `json:"batch"`

	keys     [][]byte
	loopback bool // the URL names this machine
}

func (e *Endpoint) wants(event *event.Event) bool {
	return slices.Contains(e.Events, event.Type) && (len(e.Campaigns) == 0 || slices.Contains(e.Campaigns, event.CampaignID))
}

// Endpoints are the endpoints by name.
type Endpoints map[string]*Endpoint

// ReadFile reads the endpoints file, and again when it changes. An invalid
// change is logged and ignored. Errors: ErrConfig, wrapped.
func ReadFile(path string, log *slog.Logger) (*reread.Value[Endpoints], error) {
	return reread.New(log, func() (Endpoints, error) {
		text, err := reread.Text(path)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		return Parse([]byte(text))
	}, path)
}

// Parse parses and checks an endpoints file. Errors: ErrConfig,
// wrapped; never with a secret.
func Parse(text []byte) (Endpoints, error) {
	var file struct {
		Endpoints []*Endpoint `json:"endpoints"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	_, err := decoder.Token() // More takes a stray } for the end
	if len(text) > fileMax || !errors.Is(err, io.EOF) || len(file.Endpoints) > EndpointsMax {
		return nil, fmt.Errorf("%w: must be one JSON object of at most %d bytes and %d endpoints", ErrConfig, fileMax, EndpointsMax)
	}
	all := make(Endpoints, len(file.Endpoints))
	for i, e := range file.Endpoints {
		if e == nil || models.CheckCampaignID(e.Name) != nil || all[e.Name] != nil {
			return nil, fmt.Errorf("%w: endpoint %d: name: must be 1 to 64 of A-Za-z0-9._- and of no other endpoint", ErrConfig, i+1)
		}
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("%w: endpoint %s: %w", ErrConfig, e.Name, err)
		}
		all[e.Name] = e
	}
	return all, nil
}

func (e *Endpoint) check() error {
	if err := e.checkURL(); err != nil {
		return err
	}
	if len(e.Secrets) < 1 || len(e.Secrets) > SecretsMax {
		return fmt.Errorf("secrets: must be 1 to %d", SecretsMax)
	}
	for i, secret := range e.Secrets {
		coded, prefixed := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(coded)
		if !prefixed || err != nil || len(key) < secretMin || len(key) > secretMax {
			return fmt.Errorf("secrets: secret %d must be %q and %d to %d bytes in base64", i+1, secretPrefix, secretMin, secretMax)
		}
		e.keys = append(e.keys, key)
	}
	if len(e.Events) == 0 {
		return errors.New("events: must name at least one type of event")
	}
	for _, kind := range e.Events {
		if !slices.Contains(event.Types, kind) {
			return fmt.Errorf("events: there is no type %q; the types are %v", kind, event.Types)
		}
	}
	if e.Batch < 0 || e.Batch > BatchMax {
		return fmt.Errorf("batch: must be 1 to %d, or left out", BatchMax)
	}
	if len(e.Campaigns) > CampaignsMax {
		return fmt.Errorf("campaigns: must be at most %d", CampaignsMax)
	}
	for _, id := range e.Campaigns {
		if err := models.CheckCampaignID(id); err != nil {
			return fmt.Errorf("campaigns: %q: %w", id, err)
		}
	}
	return nil
}

func (e *Endpoint) checkURL() error {
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("url: must be an https:// URL without user, password and fragment")
	}
	addr, err := netip.ParseAddr(u.Hostname())
	e.loopback = u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !e.loopback) {
		return errors.New("url: must be https://; http:// is for loopback addresses alone")
	}
	return nil
}
