package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"dibs/internal/address"
	"dibs/internal/reread"
)

const (
	// keysMax bounds a JWK Set, in bytes.
	keysMax = 1 << 20
	// keysFor is how long keys of a URL are used before they must be asked
	// for again: a key that the issuer withdrew works no longer.
	keysFor = 5 * time.Minute
	// keysAhead is how long before that a request has them asked for
	// without waiting.
	keysAhead = time.Minute
	// keysPause is the least time between two requests for keys, whatever
	// tokens come.
	keysPause = 10 * time.Second
	// keysTimeout bounds a request for keys.
	keysTimeout = 3 * time.Second
	// redirectsMax bounds the redirects of a request for keys.
	redirectsMax = 3
	logEvery     = time.Minute
)

func readKeys(path string) (*keySet, error) {
	text, err := reread.Text(path)
	if err != nil {
		return nil, refuseSetting("JWKS_FILE", "%w", err)
	}
	keys, err := parseKeys([]byte(text))
	if err != nil {
		return nil, refuseSetting("JWKS_FILE", "%s: %w", path, err)
	}
	return keys, nil
}

type keyFile struct {
	now    *reread.Value[*keySet]
	maxAge time.Duration
}

func newKeyFile(path string, maxAge time.Duration, log *slog.Logger) (*keyFile, error) {
	now, err := reread.New(log, func() (*keySet, error) { return readKeys(path) }, path)
	return &keyFile{now, maxAge}, err
}

func (f *keyFile) keys(context.Context, func(*keySet) bool) (*keySet, error) {
	now := f.now.Get()
	if f.now.Failing() >= f.maxAge {
		return nil, errKeys
	}
	return now, nil
}

func (f *keyFile) state() (entries int, failing time.Duration) {
	return len(f.now.Get().all), f.now.Failing()
}

type keyURL struct {
	url     string
	maxAge  time.Duration
	log     *slog.Logger
	client  *http.Client
	logSome rate.Sometimes

	fetching sync.Mutex // held while keys are asked for

	mu      sync.Mutex
	now     *keySet   // nil before the first
	read    time.Time // when they were
	failing time.Time // since when they can't be read again; zero: they can
	pause   time.Time // no request before
}

func newKeyURL(url string, maxAge time.Duration, log *slog.Logger) *keyURL {
	return &keyURL{
		url: url, maxAge: maxAge, log: log,
		client: &http.Client{
			Timeout: keysTimeout, Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment},
			CheckRedirect: checkRedirect,
		},
		logSome: rate.Sometimes{Interval: logEvery},
	}
}

// checkRedirect follows a few redirects by HTTPS. Whoever can change an
// answer on plain HTTP can make tokens.
func checkRedirect(to *http.Request, via []*http.Request) error {
	switch {
	case len(via) > redirectsMax:
		return errors.New("auth: too many redirects")
	case to.URL.Scheme != "https":
		return fmt.Errorf("auth: a redirect away from HTTPS, to %s://%s, is not followed", to.URL.Scheme, to.URL.Host)
	}
	return nil
}

// keys asks the issuer when none of the keys fits, and when they are old.
// While the issuer does not answer, those that were read are given until
// they are too old. Errors: errKeys.
func (u *keyURL) keys(ctx context.Context, fits func(*keySet) bool) (*keySet, error) {
	now, next := u.cached(fits)
	switch next {
	case keep:
		return orNone(now)
	case readBeside:
		u.fetchBeside(ctx)
		return now, nil
	case readFirst:
	}
	u.fetching.Lock()
	now, next = u.cached(fits)
	if next == keep { // another request has asked
		u.fetching.Unlock()
		return orNone(now)
	}
	u.fetch(context.WithoutCancel(ctx))
	now, _ = u.cached(fits)
	return orNone(now)
}

func orNone(now *keySet) (*keySet, error) {
	if now == nil {
		return nil, errKeys
	}
	return now, nil
}

// next is what to do before keys are given.
type next int

const (
	keep       next = iota // they are fresh, or the issuer was asked a moment ago
	readBeside             // they will do, and the issuer is asked for the next request
	readFirst
)

// cached is the keys that may be used, nil for none, and whether the
// issuer is to be asked.
func (u *keyURL) cached(fits func(*keySet) bool) (*keySet, next) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := time.Now()
	now := u.now
	age := at.Sub(u.read)
	if age >= u.maxAge {
		now = nil
	}
	fit := now != nil && fits(now)
	switch {
	case at.Before(u.pause) || fit && age < keysFor-keysAhead:
		return now, keep
	case fit && (age < keysFor || !u.failing.IsZero()):
		return now, readBeside
	}
	return now, readFirst
}

func (u *keyURL) state() (entries int, failing time.Duration) {
	if _, next := u.cached(func(*keySet) bool { return true }); next != keep {
		u.fetchBeside(context.Background())
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.now != nil {
		entries = len(u.now.all)
	}
	if !u.failing.IsZero() {
		failing = time.Since(u.failing)
	}
	return entries, failing
}

// fetchBeside asks the issuer, unless someone does, and waits for nothing.
func (u *keyURL) fetchBeside(ctx context.Context) {
	if u.fetching.TryLock() {
		go u.fetch(context.WithoutCancel(ctx))
	}
}

// fetch asks the issuer. Its caller holds fetching, which it frees.
func (u *keyURL) fetch(ctx context.Context) {
	defer u.fetching.Unlock()
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	keys, err := u.request(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	at := time.Now()
	u.pause = at.Add(keysPause)
	if err != nil {
		if u.failing.IsZero() {
			u.failing = at
		}
		u.logSome.Do(func() {
			u.log.ErrorContext(ctx, "the issuer's keys can't be read: JWTs are verified by the keys that were read before, if any",
				slog.String("url", address.MaskURL(u.url)), slog.Any("error", err))
		})
		return
	}
	u.read = at
	u.failing = time.Time{}
	if u.now == nil || !reflect.DeepEqual(u.now, keys) {
		u.now = keys
		level := slog.LevelInfo
		if len(keys.all) == 0 {
			level = slog.LevelError
		}
		u.log.Log(ctx, level, "the issuer's keys are read", slog.Int("keys", len(keys.all)))
	}
}

func (u *keyURL) request(ctx context.Context) (*keySet, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url, nil) //nolint:gosec // the operator's setting
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	res, err := u.client.Do(req) //nolint:gosec // the same
	if failed, is := errors.AsType[*url.Error](err); is {
		err = failed.Err // the URL may hold a password
	}
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
