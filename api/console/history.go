package console

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

// Names in the history of a campaign; the others are codes of refusals, and buckets of times.
const (
	claimedCount = "claimed"
	leftGauge    = "left"
	backlogGauge = "backlog"
	flushGauge   = "flush"
)

// latencySteps is over how many of the last steps the page's own percentiles go.
const latencySteps = 4

// plots is the history of a campaign as its page draws it. A value that is not known is null.
type plots struct {
	At      []int64               `json:"at"` // the middle of each step, in seconds since 1970
	Left    []*int64              `json:"left"`
	Backlog []*int64              `json:"backlog"`
	FlushMs []*int64              `json:"flush_ms"`
	Rates   map[string][]*float64 `json:"rates"` // claims a second: claimed, and by code of refusal
	P50Ms   []*float64            `json:"p50_ms"`
	P99Ms   []*float64            `json:"p99_ms"`
	Last    percentiles           `json:"last"` // of the last minute
	Marks   []mark                `json:"marks"`
}

type percentiles struct {
	P50Ms *float64 `json:"p50_ms"`
	P99Ms *float64 `json:"p99_ms"`
}

// mark is what someone did to the campaign.
type mark struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

func (c *Console) getHistory(w http.ResponseWriter, r *http.Request, _ *session) {
	id := r.PathValue("id")
	if models.CheckCampaignID(id) != nil {
		wire.Refuse(wire.CodeCampaignNotFound).Write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	now := time.Now()
	since := now.Add(-lua.HistorySpan)
	histories, err := c.cfg.Redis.ReadHistory(ctx, []string{id}, since)
	if err != nil {
		wire.Refuse(wire.CodeUnavailable).Write(w)
		return
	}
	p := plotsOf(histories[0], stepsSince(since, now))
	p.Marks = c.marks(r, id, since)
	w.Header()["Content-Type"] = wire.JSONContentType
	_ = json.NewEncoder(w).Encode(p) //nolint:errchkjson // a browser that is gone needs no answer
}

// stepsSince are the starts of the steps that ended between two times.
func stepsSince(since, now time.Time) (steps []int64) {
	width := int64(lua.HistoryStep / time.Second)
	for at := since.Unix()/width*width + width; at+width <= now.Unix(); at += width {
		steps = append(steps, at)
	}
	return steps
}

func plotsOf(h lua.History, steps []int64) *plots {
	p := &plots{ // lists, where nothing is known as well
		At: []int64{}, Left: []*int64{}, Backlog: []*int64{}, FlushMs: []*int64{}, P50Ms: []*float64{}, P99Ms: []*float64{},
		Rates: map[string][]*float64{claimedCount: {}},
	}
	width := int64(lua.HistoryStep / time.Second)
	known := func(counts map[string]int64, name string) *int64 {
		if n, there := counts[name]; there {
			return &n
		}
		return nil
	}
	for len(steps) > 0 && len(h[steps[0]]) == 0 { // a rush of some minutes has the whole width
		steps = steps[1:]
	}
	names := []string{claimedCount}
	for _, counts := range h {
		for name := range counts {
			if !strings.HasPrefix(name, models.TookPrefix) && !slices.Contains([]string{leftGauge, backlogGauge, flushGauge}, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, at := range steps {
		counts := h[at]
		p.At = append(p.At, at+width/2)
		p.Left = append(p.Left, known(counts, leftGauge))
		p.Backlog = append(p.Backlog, known(counts, backlogGauge))
		p.FlushMs = append(p.FlushMs, known(counts, flushGauge))
		for _, name := range names {
			p.Rates[name] = append(p.Rates[name], new(math.Round(10*float64(counts[name])/float64(width))/10))
		}
		of := percentilesOf(counts)
		p.P50Ms = append(p.P50Ms, of.P50Ms)
		p.P99Ms = append(p.P99Ms, of.P99Ms)
	}
	last := map[string]int64{}
	for _, at := range steps[max(0, len(steps)-latencySteps):] {
		for name, n := range h[at] {
			last[name] += n
		}
	}
	p.Last = percentilesOf(last)
	return p
}

// percentilesOf reads percentiles from the buckets of times among counts.
func percentilesOf(counts map[string]int64) percentiles {
	buckets := map[int]int64{}
	all := int64(0)
	for name, n := range counts {
		if text, is := strings.CutPrefix(name, models.TookPrefix); is {
			if bucket, err := strconv.Atoi(text); err == nil {
				buckets[bucket] = n
				all += n
			}
		}
	}
	if all == 0 {
		return percentiles{}
	}
	at := func(part float64) *float64 {
		seen := int64(0)
		for bucket := 0; ; bucket++ {
			seen += buckets[bucket]
			if float64(seen) >= part*float64(all) {
				return new(math.Round(100*models.TookBound(bucket).Seconds()*1000) / 100)
			}
		}
	}
	return percentiles{at(0.5), at(0.99)}
}

// marks are what the audit log has of the campaign, the oldest first; none while MySQL does not answer.
func (c *Console) marks(r *http.Request, id string, since time.Time) []mark {
	entries, _ := c.audit(r, url.Values{"campaign_id": {id}, "since": {since.UTC().Format(time.RFC3339)}, "limit": {"100"}})
	marks := make([]mark, 0, len(entries.Entries))
	for i := range slices.Backward(entries.Entries) {
		e := &entries.Entries[i]
		text := strings.TrimPrefix(strings.TrimPrefix(e.Action, "campaign."), "books.")
		if change := e.Change(); e.Action == models.AuditCampaignChanged && change != "" {
			text = change
		}
		marks = append(marks, mark{At: e.At.Unix(), Text: text + ", " + e.Actor})
	}
	return marks
}
