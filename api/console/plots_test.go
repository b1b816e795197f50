package console_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// keepPlots has a page keep its plots as window.plots.
const keepPlots = `window.plots = [];
	let real;
	Object.defineProperty(window, 'uPlot', {configurable: true, set: (v) => { real = v; }, get: () => new Proxy(real, {
		construct: (plot, args) => { const u = new plot(...args); window.plots.push(u); return u; },
	})});
	window.plotOf = (id) => window.plots.findLast((u) => u.root.isConnected && u.root.parentNode.id === 'plot-' + id);`

// TestThePlotsOfACampaign begin with what was while nobody watched, and a reload shows what was shown live. They share a cursor, say their
// units, and mark what operators did. Times are those of the reader's zone.
func TestThePlotsOfACampaign(t *testing.T) {
	t.Parallel()
	chromium(t)
	s := serve(t)
	s.coupon("spring", 4, "")
	s.api("PATCH", "/v1/campaigns/spring", `{"total":5}`)
	s.claim("spring", "ada", "bob")
	b := open(t, s)
	b.do(func(ctx context.Context, tab *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, tab, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
		return chromedp.Void{}, err
	})
	b.signIn(viewer)
	b.before(keepPlots)
	visit := func() {
		b.visit("/console/campaigns/spring")
		for id, unit := range map[string]string{"left": "units", "rates": "claims/s", "backlog": "units", "took": "ms", "flush": "ms"} {
			b.until("window.plotOf('" + id + "') && window.plotOf('" + id + "').axes[1].label === '" + unit + "'")
		}
	}
	visit()
	const series = "const u = window.plotOf('rates'), soldOut = u.data[u.series.findIndex((s) => s.label === 'sold out')]; "
	b.until("window.plotOf('rates').data[0].length >= 4")
	b.until("window.plotOf('left').data[1].includes(3)")
	s.claim("spring", "cid", "dan", "eve", "fay", "gus", "hal") // the last three are refused
	b.until("(() => { " + series + "return soldOut && soldOut.some((v) => v > 0); })()")
	ramp := func(what string) {
		b.until("(() => { " + series + "return soldOut && soldOut.some((v) => v > 0); })()")
		require.True(t, eval[bool](b, "(() => { "+series+"const first = soldOut.findIndex((v) => v > 0); "+
			"return first >= 3 && soldOut.length === u.data[0].length && soldOut.slice(0, first).every((v) => v === 0); })()"),
			"%s: 0 until the first refusal, and not a ramp", what)
	}
	ramp("live")
	shown := eval[[][]float64](b, "(() => { "+series+"return [u.data[0], soldOut]; })()")
	visit()
	ramp("after a reload")
	again := eval[[][]float64](b, "(() => { "+series+"return [u.data[0], soldOut]; })()")
	for i, at := range again[0] {
		if j := slices.Index(shown[0], at); j >= 0 {
			require.InDelta(t, shown[1][j], again[1][i], 0, "the same second looks the same")
		}
	}
	b.until("document.querySelector('[data-figure=took]').textContent.includes('·')")
	b.until("document.querySelector('#changes').innerText.includes('total 4 -> 5')")
	require.True(t, eval[bool](b, "[...document.querySelectorAll('details')].length >= 2 && [...document.querySelectorAll('details')].every((d) => !d.open)"),
		"flushes and comparisons are collapsed")
	// A cursor on one plot shows what all have at that time.
	_ = eval[bool](b, `(() => { const u = window.plotOf('left'), box = u.over.getBoundingClientRect();
		const x = box.left + u.valToPos(u.data[0][u.data[1].indexOf(3)], 'x'), y = box.top + 20;
		for (const type of ['mouseenter', 'mousemove']) u.over.dispatchEvent(new MouseEvent(type, {clientX: x, clientY: y, bubbles: true}));
		return true; })()`)
	values := func(id string) string { return "document.querySelector('#plot-" + id + " .u-legend').innerText" }
	b.until(values("left") + ".includes('3 units')")
	b.until(values("rates") + ".includes('0/s')")
	created := eval[[]string](b, "(() => { const e = [...document.querySelectorAll('dt')].find((e) => e.textContent === 'Created').nextSibling.firstChild; "+
		"return [e.dateTime, e.textContent, e.title]; })()")
	at, err := time.Parse(time.RFC3339, created[0])
	require.NoError(t, err)
	require.Equal(t, at.In(time.FixedZone("JST", 9*3600)).Format("2006-01-02 15:04:05"), created[1])
	require.Equal(t, at.UTC().Format("2006-01-02 15:04:05")+" UTC", created[2])
	b.text("times are Asia/Tokyo, UTC on hover")
}
