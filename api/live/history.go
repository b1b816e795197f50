package live

import (
	"math"
	"time"

	"dibs/lua"
	"dibs/models"
)

// history is what a sampler remembers of a campaign between two samples.
type history struct {
	at      time.Time // of the last sample that reached Redis; zero: none did
	epoch   int64
	seq     int64
	refused map[string]int64
	waiting []mark // positions that MySQL had not reached, the oldest first
}

// mark is how many claims Redis had accepted at a moment.
type mark struct {
	at  time.Time
	seq int64
}

// marksMax bounds the marks of a campaign. A backlog of more seconds keeps its oldest mark, so its age stays right.
const marksMax = 120

// rates are the claims a second since the last sample; zeros at first.
func (h *history) rates(now time.Time, w *lua.Watched) (accepted float64, refused map[string]float64) {
	refused = map[string]float64{}
	since := now.Sub(h.at).Seconds()
	if !h.at.IsZero() && since > 0 {
		if h.epoch == w.State.Epoch {
			accepted = perSecond(w.State.Seq-h.seq, since)
		}
		for code, n := range w.Refused {
			if was := h.refused[code]; n >= was {
				n -= was // else the counts expired and started over
			}
			if n > 0 {
				refused[code] = perSecond(n, since)
			}
		}
	}
	h.at = now
	h.epoch = w.State.Epoch
	h.seq = w.State.Seq
	h.refused = w.Refused
	return accepted, refused
}

// perSecond rounds to tenths.
func perSecond(n int64, seconds float64) float64 {
	return math.Round(10*max(0, float64(n))/seconds) / 10
}

// backlogAge is for how long the oldest claim that MySQL lacks has waited, as far as samples saw it.
func (h *history) backlogAge(now time.Time, seq int64, books *models.Books) time.Duration {
	inMySQL := books.SyncedSeq + books.ParkedClaims
	for len(h.waiting) > 0 && h.waiting[0].seq <= inMySQL {
		h.waiting = h.waiting[1:]
	}
	if seq <= inMySQL {
		h.waiting = nil
		return 0
	}
	if n := len(h.waiting); n < marksMax && (n == 0 || h.waiting[n-1].seq < seq) {
		h.waiting = append(h.waiting, mark{now, seq})
	}
	return now.Sub(h.waiting[0].at)
}
