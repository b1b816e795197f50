package auth

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"dibs/internal/reread"
)

const (
	// keysMax bounds a JWK Set, in bytes.
	keysMax = 1 << 20
	// keysFor is how long keys of a URL are used before they are asked for again: a key that the issuer gave up works no longer.
	keysFor = 5 * time.Minute
	// keysPause is the least time between two requests for keys, whatever tokens come.
	keysPause = 10 * time.Second
	// keysTimeout bounds a request for keys.
	keysTimeout = 3 * time.Second
	logEvery    = time.Minute
)

// readKeys reads a file of keys. Errors: *SettingError.
func readKeys(path string) (*keySet, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator's setting
	if err != nil {
		return nil, refuseSetting("JWKS_FILE", "%w", err)
	}
	if len(text) > keysMax {
		return nil, refuseSetting("JWKS_FILE", "%s is larger than %d bytes", path, keysMax)
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, refuseSetting("JWKS_FILE", "%s: %w", path, err)
	}
	return keys, nil
}

// keyFile is the keys of a file.
type keyFile struct{ now *reread.Value[*keySet] }

func newKeyFile(path string, log *slog.Logger) (keyFile, error) {
	now, err := reread.New(log, func() (*keySet, error) { return readKeys(path) }, path)
	return keyFile{now}, err
}

func (f keyFile) keys(context.Context, func(*keySet) bool) (*keySet, error) { return f.now.Get(), nil }

// keyURL is the keys of a URL.
type keyURL struct {
	url     string
	log     *slog.Logger
	client  *http.Client
	logSome rate.Sometimes

	fetching sync.Mutex // held while keys are asked for

	mu    sync.Mutex
	now   *keySet // nil before the first
	until time.Time
	pause time.Time // no request before
}

func newKeyURL(url string, log *slog.Logger) *keyURL {
	return &keyURL{
		url: url, log: log,
		client: &http.Client{
			Timeout: keysTimeout, Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment},
		},
		logSome: rate.Sometimes{Interval: logEvery},
	}
}

// keys asks the issuer when none of the keys fits, and when they are old; in between, and when the issuer does not answer, those that
// are there are given. Errors: errKeys.
func (u *keyURL) keys(ctx context.Context, fits func(*keySet) bool) (*keySet, error) {
	now, want := u.look(fits)
	if !want {
		return orNone(now)
	}
	if now != nil && fits(now) { // old, but good for this token: who asks for new ones keeps nobody waiting
		if u.fetching.TryLock() {
			go u.fetch(context.WithoutCancel(ctx))
		}
		return now, nil
	}
	u.fetching.Lock()
	if now, want = u.look(fits); !want { // somebody else has asked meanwhile
		u.fetching.Unlock()
		return orNone(now)
	}
	u.fetch(context.WithoutCancel(ctx))
	now, _ = u.look(fits)
	return orNone(now)
}

func orNone(now *keySet) (*keySet, error) {
	if now == nil {
		return nil, errKeys
	}
	return now, nil
}

// look tells whether the issuer is to be asked.
func (u *keyURL) look(fits func(*keySet) bool) (now *keySet, want bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := time.Now()
	old := u.now == nil || !at.Before(u.until) || !fits(u.now)
	return u.now, old && !at.Before(u.pause)
}

// fetch asks the issuer. Its caller holds fetching, which it frees.
func (u *keyURL) fetch(ctx context.Context) {
	defer u.fetching.Unlock()
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	keys, err := u.request(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pause = time.Now().Add(keysPause)
	if err != nil {
		u.logSome.Do(func() {
			u.log.ErrorContext(ctx, "the issuer's keys can't be read: JWTs are verified by the keys that were read before, if any",
				slog.String("url", u.url), slog.Any("error", err))
		})
		return
	}
	u.until = time.Now().Add(keysFor)
	if u.now == nil || !reflect.DeepEqual(u.now, keys) {
		u.now = keys
		u.log.InfoContext(ctx, "the issuer's keys are read", slog.Int("keys", len(keys.all)))
	}
}

func (u *keyURL) request(ctx context.Context) (*keySet, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url, nil) //nolint:gosec // the operator's setting
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	res, err := u.client.Do(req) //nolint:gosec // the same
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, keysMax))
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("auth: it answers %s", res.Status)
	}
	return parseKeys(text)
}
