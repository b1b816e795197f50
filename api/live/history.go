package live

import (
	"math"
	"strconv"
	"strings"
	"time"

	"dibs/internal/softstate"
	"dibs/models"
)

type history struct {
	at      time.Time // the last sample that Redis answered; zero: none
	epoch   int64
	seq     int64
	answers map[string]int64
	waiting []mark // positions that MySQL hadn't reached, the oldest first
}

type mark struct {
	at   time.Time
	sold int64 // units ever
}

// marksMax bounds a campaign's marks, one a second. A longer backlog keeps
// its oldest mark, so its age stays right.
const marksMax = 120

// addRates adds what happened since the last sample; zeros for the first.
func (h *history) addRates(e *Event, now time.Time, w *softstate.Watched) {
	e.RefusedPerS = map[string]float64{}
	took := now.Sub(h.at).Seconds()
	if !h.at.IsZero() && took > 0 {
		if h.epoch == w.State.Epoch {
			e.AcceptedPerS = perSecond(w.State.Seq-h.seq, took)
		}
		news := since(h.answers, w.Answers)
		for code, n := range news {
			if code != string(models.OutcomeClaimed) && !strings.HasPrefix(code, models.TookPrefix) {
				e.RefusedPerS[code] = perSecond(n, took)
			}
		}
		e.P50Ms, e.P99Ms = percentilesOf(news)
	}
	h.at = now
	h.epoch = w.State.Epoch
	h.seq = w.State.Seq
	h.answers = w.Answers
}

// since is the counts between two samples. A count that fell has restarted
// from 0.
func since(before, now map[string]int64) map[string]int64 {
	news := make(map[string]int64)
	for name, n := range now {
		if was := before[name]; n >= was {
			n -= was
		}
		if n > 0 {
			news[name] = n
		}
	}
	return news
}

// percentilesOf computes percentiles from the duration buckets; nil without
// claims.
func percentilesOf(counts map[string]int64) (p50, p99 *float64) {
	var buckets [models.TookBuckets]int64
	all := int64(0)
	for i := range buckets {
		buckets[i] = counts[models.TookPrefix+strconv.Itoa(i)]
		all += buckets[i]
	}
	seen := int64(0)
	for i, n := range buckets {
		seen += n
		bound := math.Round(100*models.TookBound(i).Seconds()*1000) / 100
		if all > 0 && p50 == nil && 2*seen >= all {
			p50 = &bound
		}
		if all > 0 && p99 == nil && 100*seen >= 99*all {
			p99 = &bound
		}
	}
	return p50, p99
}

func perSecond(n int64, seconds float64) float64 {
	return math.Round(10*max(0, float64(n))/seconds) / 10
}

// backlogAge is how long the oldest claim that MySQL lacks has waited,
// according to the samples.
func (h *history) backlogAge(now time.Time, sold int64, books *models.Books) time.Duration {
	inMySQL := books.SoldEver()
	for len(h.waiting) > 0 && h.waiting[0].sold <= inMySQL {
		h.waiting = h.waiting[1:]
	}
	if sold <= inMySQL {
		h.waiting = nil
		return 0
	}
	if n := len(h.waiting); n < marksMax && (n == 0 || h.waiting[n-1].sold < sold) {
		h.waiting = append(h.waiting, mark{now, sold})
	}
	return now.Sub(h.waiting[0].at)
}
