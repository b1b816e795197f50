package torture

import (
	"strings"

	"dibs/models"
)

// checkLines: a line of the stock that a claim crosses is told once. One that a change crosses may be told again by whoever completes it,
// under the same id; these are no more than changes. And what is sold out in the end was told so.
func (rd *round) checkLines(l *ledger, told []models.Event) {
	if l.shards > 1 {
		return // told after a look at all of them
	}
	times := map[string]int{}
	changes := map[string]bool{}
	kinds := map[models.EventType]bool{}
	for i := range told {
		e := &told[i]
		times[e.ID]++
		kinds[e.Type] = true
		by, _, _ := strings.Cut(e.ID, ":")
		switch {
		case l.byID[by] == nil:
			changes[by] = true
		case times[e.ID] > 1:
			rd.brokenf("%s: %s is told %d times by claim %s", l.id, e.Type, times[e.ID], by)
		}
	}
	if len(changes) > len(l.totals) {
		rd.brokenf("%s: %d changes crossed a line, %d were made", l.id, len(changes), len(l.totals))
	}
	if l.closed || strings.HasSuffix(l.id, endless) {
		return
	}
	if !kinds[models.EventCampaignSoldOut] || l.lowAt > 0 && !kinds[models.EventCampaignLowStock] {
		rd.brokenf("%s is sold out, and no one was told of each line: %v", l.id, kinds)
	}
}
