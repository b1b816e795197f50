package console_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	browserpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/axe.min.js
var axe string

type browser struct {
	t   testing.TB
	ctx context.Context //nolint:containedctx // chromedp's tab
	s   *service

	mu    sync.Mutex
	wrong []string // what the page wrote to the browser's console
}

// chromium is the path of a browser; without one the test is skipped.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("NO BROWSER: the console's pages are not tried. `make servers` installs Debian's chromium; elsewhere install Chromium or Chrome.")
	return ""
}

func open(t testing.TB, s *service) *browser {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.WindowSize(1280, 900),
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocator, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, _ := chromedp.NewContext(allocator)
	b := &browser{t: t, ctx: ctx, s: s}
	require.NoError(t, chromedp.Do(ctx))
	messages, listened := chromedp.Console(ctx), make(chan struct{})
	go func() {
		defer close(listened)
		for m, err := range messages {
			if err != nil {
				return
			}
			b.heard(m)
		}
	}()
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		cancel()
		<-listened
	})
	return b
}

func (b *browser) heard(m chromedp.ConsoleMessage) {
	if m.Type != chromedp.ConsoleError && m.Type != chromedp.ConsoleException && m.Type != chromedp.ConsoleWarning {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, string(m.Type)+": "+m.Text+" "+m.URL)
}

// said returns and clears the records of heard.
func (b *browser) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := b.wrong
	b.wrong = nil
	return said
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, "%.200s", expression)
	return value
}

func (b *browser) until(expression string) {
	b.t.Helper()
	deadline := time.Now().Add(within)
	for {
		ctx, cancel := context.WithTimeout(b.ctx, within)
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		cancel()
		if err == nil && is {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(b.t, "it never was", "%s: %v\n%s", expression, err, eval[string](b, "document.body.innerText"))
		}
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // a page gives no signal
	}
}

func (b *browser) text(want string) {
	b.t.Helper()
	quoted, err := json.Marshal(want)
	require.NoError(b.t, err)
	b.until(fmt.Sprintf("document.body && document.body.innerText.includes(%s)", quoted))
}

func (b *browser) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.s.url + path))
}

func (b *browser) signIn(token string) {
	b.t.Helper()
	b.visit("/console")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"))
	b.until("location.pathname === '/console' && document.querySelector('#filter')")
}

func (b *browser) dark(is bool) {
	b.t.Helper()
	value := "light"
	if is {
		value = "dark"
	}
	b.do(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}},
		})
		return chromedp.Void{}, err
	})
}

// accessible requires that axe finds nothing on the page, in light on a screen
// and in dark on a phone, and that neither needs to scroll sideways.
func (b *browser) accessible(what string) {
	b.t.Helper()
	_ = eval[bool](b, axe+"; true")
	for width, dark := range map[int64]bool{1400: false, 400: true} {
		b.dark(dark)
		b.do(chromedp.EmulateViewport(width, 900))
		found := eval[string](b, `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations
			.map((v) => v.id + ': ' + v.nodes.map((n) => n.html + ' ' + n.failureSummary).join(' | ')).join('\n'))`)
		require.Empty(b.t, found, "%s, dark %v, %d wide", what, dark, width)
		require.LessOrEqual(b.t, eval[int64](b, "document.documentElement.scrollWidth"), width, "%s scrolls sideways", what)
	}
	b.dark(false)
	b.do(chromedp.EmulateViewport(1280, 900))
}

// tab presses the tabulator until an element has the focus, then keys.
func (b *browser) tab(selector, keys string) {
	b.t.Helper()
	at := "document.activeElement && document.activeElement.matches(" + strconv.Quote(selector) + ")"
	for range 120 {
		b.do(chromedp.KeyEvent("\t"))
		if eval[bool](b, "!!("+at+")") {
			b.do(chromedp.KeyEvent(keys))
			return
		}
	}
	require.FailNow(b.t, "no key leads there", selector)
}

// picture saves a screenshot in the folder that DIBS_PICTURES names, if any.
func (b *browser) picture(name string) {
	b.t.Helper()
	folder := os.Getenv("DIBS_PICTURES")
	if folder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(folder, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600))
}

func (s *service) rush(id string, pause time.Duration) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-time.After(pause):
				s.claim(id, fmt.Sprintf("user-%d", i*2/3)) // every third user claims twice
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(done)
		<-ended
	})
}

func (b *browser) script(on bool) {
	b.t.Helper()
	b.do(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
		return chromedp.Void{}, err
	})
}

// From signing in to closing a campaign, everything must work without a
// mouse.
func TestEverythingWorksByKeyboard(t *testing.T) {
	t.Parallel()
	chromium(t)
	s := serve(t)
	b := open(t, s)
	b.visit("/console")
	b.do(chromedp.KeyEvent(admin + "\r")) // the field has the focus
	b.text("New campaign …")
	b.tab("a[href='/console/new']", "\r")
	b.until("location.pathname === '/console/new'")
	b.tab("#id", "drop")
	b.tab("#total", "100")
	b.tab("button.main", "\r")
	b.text("The campaign is created.")
	b.tab("#total", "0") // the old value is selected
	b.tab("form[action$='/edit'] button", "\r")
	b.text("from 100 to 0")
	b.tab("main .button", "\r")
	b.until("location.pathname === '/console/campaigns/drop'")
	b.tab("a[href$='/pause']", "\r")
	b.text("What will happen")
	b.tab("button.main", "\r")
	b.text("The campaign is paused.")
	b.tab("details summary", "\r")
	b.until("document.querySelector('details').open")
	b.tab("a[href$='/close']", "\r")
	b.text("for ever")
	b.tab("#confirm", "drop\r")
	b.text("The campaign is closed.")
	b.tab("#q", "nobody\r")
	b.text("No claim has this id")
	b.visit("/console")
	b.do(chromedp.KeyEvent("\t"))
	require.Equal(t, "To the content", eval[string](b, "document.activeElement.textContent"))
	require.Empty(t, b.said())
}

// One page after the other shows a campaign as it changes.
func TestPagesThatWatch(t *testing.T) {
	t.Parallel()
	chromium(t)
	folder := t.TempDir()
	s := serve(t, "DIBS_DATA_DIR="+folder)
	s.coupon("spring", 100, "")
	b := open(t, s)
	b.signIn(viewer)
	aTabThatNobodySeesKeepsNoConnection(t, s, b)
	aLostConnectionIsSaidAndComesBack(t, s, b, folder)
	troubleIsMarked(t, b)
}

// A browser has six connections for all tabs. If hidden tabs kept theirs,
// the seventh would never load.
func aTabThatNobodySeesKeepsNoConnection(t *testing.T, s *service, b *browser) {
	watchers := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(s.api("GET", "/metrics", ""), "dibs_watchers "+want+"\n") }, within, 50*time.Millisecond)
	}
	const show = `hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); document.dispatchEvent(new Event('visibilitychange')); }`
	for _, path := range []string{"/console/campaigns/spring", "/console"} {
		b.visit(path)
		watchers("1")
		b.do(chromedp.Evaluate[chromedp.Void]("(" + show + ")(true)"))
		watchers("0")
		b.do(chromedp.Evaluate[chromedp.Void]("(" + show + ")(false)"))
		watchers("1")
		b.until("document.querySelector('#live').textContent === 'Live'")
	}
	require.Empty(t, b.said())
}

// The service ends while a page is open, and starts again.
func aLostConnectionIsSaidAndComesBack(t *testing.T, s *service, b *browser, folder string) {
	b.visit("/console/campaigns/spring")
	b.until("document.querySelector('#live').textContent === 'Live'")
	s.stop()
	b.text("The connection is lost")
	s.stop = s.start("DIBS_DATA_DIR=" + folder)
	b.until("document.querySelector('#live').textContent === 'Live'")
	for _, line := range b.said() {
		require.Contains(t, line, "net::ERR_", "nothing but that the service was away")
	}
}

// Every page must work in a real Chromium, log nothing to its console, and
// be accessible.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	chromium(t)
	s := serve(t, "DIBS_PARTITIONS=4")
	total := 400
	name := strings.Repeat("A name of many words ", 9)
	if os.Getenv("DIBS_PICTURES") != "" {
		total = 2_000 // so that pictures show something
		name = "Summer sale"
	}
	s.coupon("spring", total, `,"per_user":1,"low_stock_at":40,"name":"Spring sale"`)
	s.coupon("summer", 50, `,"name":"`+name+`"`)
	s.claim("summer", "ada", "bob")
	s.synced("summer")
	b := open(t, s)
	b.visit("/console")
	b.accessible("signing in")
	b.signIn(admin)
	stop := s.rush("spring", 5*time.Millisecond)
	defer stop()

	b.until("document.querySelectorAll('#campaigns tbody tr').length === 2")
	b.text("Live")
	b.until("Number(document.querySelector('[data-id=spring] [data-figure=accepted]').textContent) > 1")
	b.until("Number(document.querySelector('[data-id=spring] [data-figure=refused]').textContent) > 1")
	b.text("syncer-1 leads")
	b.accessible("overview")
	b.picture("console-overview")
	b.until("location.pathname === '/console/campaigns/spring' || (document.querySelector('[data-id=spring] a').click(), false)")
	b.until("document.querySelectorAll('.uplot canvas').length === 5")
	b.until("[...document.querySelectorAll('#plot-rates .u-legend th')].some((e) => e.textContent.includes('user limit'))")
	b.text("sold out in")
	b.text("Last flushes")
	b.accessible("campaign")
	b.until(fmt.Sprintf("Number(document.querySelector('progress').value) < %d", total*2/5))
	b.picture("console-campaign")
	b.dark(true)
	b.picture("console-campaign-dark")
	b.dark(false)

	stop()
	require.Contains(t, s.api("POST", "/v1/campaigns", `{"id":"rain","kind":"packet","currency":"EUR","sender_id":"boss"}`), `"version"`)
	require.Contains(t, s.api("POST", "/v1/campaigns/rain/packets", `{"packets":[{"id":"a","amount":125}]}`), `"count":1`)
	for _, path := range []string{
		"/console/campaigns/spring/pause", "/console/campaigns/spring/restock?total=900", "/console/campaigns/spring/repair", "/console/campaigns/rain",
		"/console/campaigns/rain/packets?count=2&amount=1.25&split=even", "/console/new", "/console/new?like=rain", "/console/trouble", "/console/campaigns/spring/claims", "/console/processes", "/console/audit", "/console/find?q=ada", "/console/find?q=none",
	} {
		b.visit(path)
		b.accessible(path)
	}
	b.visit("/console/find?q=ada")
	b.do(chromedp.Click(chromedp.CSS("td a")))
	b.text("Its life")
	b.text("In MySQL")
	b.accessible("claim")
	b.picture("console-claim")
	require.Empty(t, b.said(), "on the console of the browser")

	b.script(false) // the figures come from the server
	b.visit("/console/campaigns/spring")
	b.text("Without JavaScript there are no plots")
	b.text(" of ")
	b.until("!document.querySelector('.plots').checkVisibility()")
	require.NotContains(t, eval[string](b, "document.body.innerText"), "Connecting")
	b.script(true)

	b.visit("/console/claims/nothing") // the browser itself logs the page's status
	b.text("Claim not found")
	b.accessible("refusal")
	b.said()
	eachShardIsShown(t, s, b)
}

// A sharded campaign's page must show each shard, live.
func eachShardIsShown(t *testing.T, s *service, b *browser) {
	s.coupon("drop", 200, `,"shards":4`)
	s.coupon("plain", 5, "")
	for i := range 60 {
		require.Contains(t, s.claim("drop", fmt.Sprint("user-", i))[0], `"seq"`)
	}
	b.visit("/console")
	b.until("document.querySelector('[data-id=drop] [data-figure=left]').textContent === '140'")
	b.visit("/console/campaigns/drop")
	b.until("document.querySelectorAll('#shards tbody tr').length === 4")
	b.text("140 of 200")
	b.until("document.querySelector('[data-figure=backlog]').textContent.startsWith('0 units')")
	sums := func(condition string) { // in one expression, because units may move between two
		b.until("(sum => " + condition + ")(column => [...document.querySelectorAll('#shards tbody tr')].reduce((sum, row) => sum + parseInt(row.cells[column].textContent), 0))")
	}
	// partitions 0 to 3; granted and not claimed is free
	sums("sum(1) === 6 && sum(4) === 60 && sum(2) - 60 === sum(3)")
	// in MySQL
	b.until("[...document.querySelectorAll('#shards tbody tr')].every((row) => /^(\\d+) of \\1$/.test(row.cells[5].textContent))")
	b.accessible("campaign of several shards")
	b.do(chromedp.ScrollIntoView(chromedp.CSS("#shards-head")))
	b.picture("console-shards")

	s.claim("drop", "user-60") // the page updates by itself
	b.text("139 of 200")
	sums("sum(4) === 61")
	b.visit("/console/campaigns/plain")
	b.text("5 of 5")
	b.until("!document.querySelector('#shards')")
	require.Empty(t, b.said())
}

// feed makes a page take its events from the test: window.feed.onmessage.
const feed = `window.EventSource = function () { window.feed = this; this.addEventListener = () => {}; this.close = () => {}; };`

// before runs a script in every page before the page's own.
func (b *browser) before(script string) {
	b.t.Helper()
	b.do(func(ctx context.Context, tab *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, tab, browserpage.AddScriptToEvaluateOnNewDocument,
			browserpage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return chromedp.Void{}, err
	})
}

// A campaign's problems must show on its card and on its page.
func troubleIsMarked(t *testing.T, b *browser) {
	b.before(feed)
	for path, root := range map[string]string{"/console": "[data-id=spring]", "/console/campaigns/spring": "#campaign"} {
		b.visit(path)
		b.until("window.feed && window.feed.onmessage")
		send := func(event string) {
			_ = eval[bool](b, `window.feed.onmessage({data: JSON.stringify({campaign_id: 'spring', at: '2027-01-01T00:00:10.000Z',
				books_as_of: '2027-01-01T00:00:10.000Z', status: 'open', total: 100, claimed: 60, remaining: 40, backlog: 5, backlog_age_ms: 7000,
				accepted_per_s: 1, refused_per_s: {sold_out: 2.5}, in_redis: true, flush_ms: 3, ...`+event+`})}); true`)
		}
		send("{}")
		shown := func() string { return eval[string](b, "document.querySelector('"+root+" .marks').textContent") }
		require.Equal(t, "open", shown(), path)
		for event, marks := range map[string]string{
			"{drift: -3}": "drift of -3 units", "{parked: 2}": "2 units parked", "{low: true}": "low", "{remaining: 0}": "sold out",
			"{status: 'paused'}": "paused", "{lost_units: 2}": "2 units lost",
			"{in_redis: false}": "open", "{books_as_of: '0001-01-01T00:00:00.000Z'}": "open", "{backlog: 1, parked: 1}": "1 unit parked",
			"{books_as_of: '2027-01-01T00:00:00.000Z'}": "open",
		} {
			send(event)
			require.Equal(t, marks, shown(), "%s %s", path, event)
		}
		send("{drift: 4, parked: 1}")
		b.accessible("trouble on " + path)
	}
	require.Empty(t, b.said())
}
