package console_test

import (
	"context"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// keepPlots has a page keep its plots as window.plots.
const keepPlots = `window.plots = [];
	let real;
	Object.defineProperty(window, 'uPlot', {configurable: true, set: (v) => { real = v; }, get: () => new Proxy(real, {
		construct: (plot, args) => { const u = new plot(...args); window.plots.push(u); return u; },
	})});
	window.plotOf = (id) => window.plots.findLast((u) => u.root.isConnected && u.root.parentNode.id === 'plot-' + id);`

// TestThePlotsOfACampaign begin with the last hour, also after a restart of the API. They share a cursor, say their units, and mark what
// operators did. Times are those of the reader's zone.
func TestThePlotsOfACampaign(t *testing.T) {
	t.Parallel()
	chromium(t)
	redis := testenv.Redis(t)
	servers := []string{"DIBS_REDIS_URL=" + redis.URL(), "DIBS_MYSQL_DSN=" + testenv.Database(t).DSN, "DIBS_GROUPS=syncer"}
	require.Zero(t, cmd.Run(t.Context(), cmd.Env{Args: []string{"migrate"}, Environ: servers, Stdout: io.Discard, Stderr: os.Stderr}))
	s := serve(t, servers...)
	s.coupon("spring", 1000, "")
	s.api("PATCH", "/v1/campaigns/spring", `{"total":900}`)
	s.api("PATCH", "/v1/campaigns/spring", `{"status":"paused"}`)
	scripts, err := lua.New(redis.Client(), lua.Options{})
	require.NoError(t, err)
	took := models.TookPrefix + strconv.Itoa(models.TookBucket(3*time.Millisecond))
	slow := models.TookPrefix + strconv.Itoa(models.TookBucket(50*time.Millisecond))
	for _, ago := range []time.Duration{30 * time.Minute, 30*time.Minute + lua.HistoryStep, 30 * time.Second} {
		require.NoError(t, scripts.AddHistory(t.Context(), time.Now().Add(-ago), []lua.HistoryPoint{{
			CampaignID: "spring", Counts: map[string]int64{"claimed": 150, "sold_out": 30, took: 900, slow: 20},
			Gauges: map[string]int64{"left": 850, "backlog": 7, "flush": 12},
		}}))
	}
	b := open(t, s)
	b.do(func(ctx context.Context, tab *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, tab, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
		return chromedp.Void{}, err
	})
	b.signIn(viewer)
	b.until("document.querySelector('[data-id=spring] .spark polyline')") // twenty minutes of the table
	b.before(keepPlots)
	for _, when := range []string{"first", "after a restart"} {
		b.visit("/console/campaigns/spring")
		for id, unit := range map[string]string{"left": "units", "rates": "claims/s", "backlog": "units", "took": "ms", "flush": "ms"} {
			b.until("window.plotOf('" + id + "') && window.plotOf('" + id + "').axes[1].label === '" + unit + "'")
		}
		for id, value := range map[string]string{"left": "850", "backlog": "7", "flush": "12", "rates": "10"} {
			b.until("window.plotOf('" + id + "').data.slice(1).some((list) => list.filter((v) => v === " + value + ").length >= 2)")
		}
		b.until("Math.abs(Date.now() / 1000 - window.plotOf('left').data[0][0] - 1800) < 60") // they begin with the first claims
		b.until("document.querySelector('[data-figure=took]').textContent.startsWith('half in 3.')")
		b.until("document.querySelector('[data-figure=took]').textContent.includes('99 of 100 in 5')")
		b.until("document.querySelector('#marks').innerText.includes('total 1000 -> 900')")
		b.until("document.querySelector('#marks').innerText.includes('paused')")
		require.True(t, eval[bool](b, "[...document.querySelectorAll('details')].length >= 2 && [...document.querySelectorAll('details')].every((d) => !d.open)"),
			"flushes and comparisons are collapsed")
		if when == "first" {
			s.stop()
			s.stop = s.start(servers...)
		}
	}
	// A cursor on one plot shows what all have at that time, here half an hour ago.
	_ = eval[bool](b, `(() => { const u = window.plotOf('left'), box = u.over.getBoundingClientRect();
		const x = box.left + u.valToPos(u.data[0][u.data[1].indexOf(850)], 'x'), y = box.top + 20;
		for (const type of ['mouseenter', 'mousemove']) u.over.dispatchEvent(new MouseEvent(type, {clientX: x, clientY: y, bubbles: true}));
		return true; })()`)
	values := func(id string) string { return "document.querySelector('#plot-" + id + " .u-legend').innerText" }
	b.until(values("left") + ".includes('850 units')")
	b.until(values("rates") + ".includes('10/s')")
	b.until(values("rates") + ".includes('2/s')")
	b.until(values("backlog") + ".includes('7 units')")
	b.until(values("flush") + ".includes('12 ms')")
	created := eval[[]string](b, "(() => { const e = [...document.querySelectorAll('dt')].find((e) => e.textContent === 'Created').nextSibling.firstChild; "+
		"return [e.dateTime, e.textContent, e.title]; })()")
	at, err := time.Parse(time.RFC3339, created[0])
	require.NoError(t, err)
	require.Equal(t, at.In(time.FixedZone("JST", 9*3600)).Format("2006-01-02 15:04:05"), created[1])
	require.Equal(t, at.UTC().Format("2006-01-02 15:04:05")+" UTC", created[2])
	b.text("times are Asia/Tokyo, UTC on hover")
}
