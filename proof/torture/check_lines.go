package torture

import (
	"strings"

	"dibs/models"
)

// checkLines: a line of the stock that a claim crosses is published once. One that a change crosses may be published again by whoever completes it,
// under the same id; these are no more than changes. And what is sold out in the end was said to be.
func (rd *round) checkLines(l *ledger, published []models.Event) {
	if l.shards > 1 {
		return // reported once all of them were read
	}
	times := map[string]int{}
	changes := map[string]bool{}
	kinds := map[models.EventType]bool{}
	for i := range published {
		e := &published[i]
		times[e.ID]++
		kinds[e.Type] = true
		by, _, _ := strings.Cut(e.ID, ":")
		switch {
		case l.byID[by] == nil:
			changes[by] = true
		case times[e.ID] > 1:
			rd.brokenf("%s: %s is published %d times by claim %s", l.id, e.Type, times[e.ID], by)
		}
	}
	if len(changes) > len(l.totals) {
		rd.brokenf("%s: %d changes crossed a line, %d were made", l.id, len(changes), len(l.totals))
	}
	if l.closed || strings.HasSuffix(l.id, endless) {
		return
	}
	if !kinds[models.EventCampaignSoldOut] || l.lowAt > 0 && !kinds[models.EventCampaignLowStock] {
		rd.brokenf("%s is sold out, and not each line was published: %v", l.id, kinds)
	}
}
