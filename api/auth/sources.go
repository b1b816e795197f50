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
	// keysFor is how long a URL's keys are used before they must be read
	// again. After that, a withdrawn key no longer works.
	keysFor = 5 * time.Minute
	// keysAhead is how long before that a request starts a read without
	// waiting for it.
	keysAhead = time.Minute
	// keysPause is the least time between two reads, whatever tokens arrive.
	keysPause = 10 * time.Second
	// keysTimeout bounds a read of keys.
	keysTimeout = 3 * time.Second
	// redirectsMax bounds a read's redirects.
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

func (f *keyFile) keys(_ context.Context, fits func(*keySet) bool) (*keySet, error) {
	now := f.now.Get()
	failing := f.now.Failing()
	if failing >= f.maxAge || failing > 0 && !fits(now) { // the file may have such a key by now
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

	fetching sync.Mutex // held while keys are read

	mu      sync.Mutex
	now     *keySet   // nil before the first
	read    time.Time // time of the last read
	failing time.Time // since when rereading fails; zero: it works
	pause   time.Time // no read before this time
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

// checkRedirect follows few redirects, only to HTTPS. Who controls a plain
// HTTP answer can forge tokens.
func checkRedirect(to *http.Request, via []*http.Request) error {
	switch {
	case len(via) > redirectsMax:
		return errors.New("auth: too many redirects")
	case to.URL.Scheme != "https":
		return fmt.Errorf("auth: a redirect away from HTTPS, to %s://%s, is not followed", to.URL.Scheme, to.URL.Host)
	}
	return nil
}

// keys reads again if no key fits or if the keys are old. While the issuer
// doesn't answer, it returns the last keys until they are too old, if one
// fits. Errors: errKeys.
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
	if next == keep { // another request has read them
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

// next is what to do before keys are returned.
type next int

const (
	keep       next = iota // fresh, or read a moment ago
	readBeside             // good enough; read for the next request
	readFirst
)

// cached returns the usable keys, nil if there are none, and whether to
// read again.
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
	if !fit && !u.failing.IsZero() { // the issuer may have such a key by now
		now = nil
	}
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

// fetchBeside starts a read unless one is running. It doesn't wait.
func (u *keyURL) fetchBeside(ctx context.Context) {
	if u.fetching.TryLock() {
		go u.fetch(context.WithoutCancel(ctx))
	}
}

// fetch reads the keys. The caller holds fetching, and fetch unlocks it.
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
		err = failed.Err // the URL may contain a password
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
