package torture

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/oracle"
	"dibs/models"
	"dibs/models/event"
)

// past is a round without faults that opened a campaign an hour
// ago, and a claim of two units by one user.
func past(change func(c *campaign)) (*round, *ledger) {
	open := time.Now().Add(-time.Hour)
	c := &campaign{id: "c", shards: 1}
	for spells, value := range map[*[]spell]int64{&c.totals: 10, &c.limits: 0, &c.paused: 0, &c.starts: 0, &c.ends: never} {
		*spells = []spell{{value: value, from: open}}
	}
	change(c)
	at := models.NewTime(time.Now().Add(-time.Minute)).Time
	r := &oracle.Row{ID: "claim", Key: "key", User: "u", Quantity: 2, Seq: 1, Status: models.ClaimClaimed, At: at}
	rd := &round{w: &world{opt: &Options{Progress: func(string) {}}}, report: &Report{}, open: open}
	books := &oracle.Books{ID: c.id, Rows: []oracle.Row{*r}, ByID: map[string]*oracle.Row{r.ID: r}, Live: r.Quantity}
	return rd, &ledger{campaign: c, Books: books, rows: []row{{Row: r, at: r.At}}}
}

// since sets a value in force for the last half hour.
func since(spells *[]spell, value int64) {
	then := time.Now().Add(-30 * time.Minute)
	(*spells)[0].till = then
	*spells = append(*spells, spell{value: value, from: then})
}

// Each history has one violation, which the check must find.
func TestChecksOfClaimsTell(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Minute).UnixMilli()
	for _, one := range []struct {
		broken string
		change func(c *campaign)
	}{
		{"", func(*campaign) {}},
		{"", func(c *campaign) { c.perDay = 2 }},
		{"held 2 units of 1 a day", func(c *campaign) { c.perDay = 1 }},
		{"was paused", func(c *campaign) { since(&c.paused, 1) }},
		{"had not started", func(c *campaign) { since(&c.starts, soon) }},
		{"was over", func(c *campaign) { since(&c.ends, 1) }},
	} {
		rd, l := past(one.change)
		rd.checkOrder(l)
		requireBroken(t, rd, one.broken)
	}
}

func TestChecksOfRefusalsTell(t *testing.T) {
	t.Parallel()
	for code, sound := range map[string]func(c *campaign){
		"user_day_limit": func(c *campaign) { c.perDay = 2 },
		"paused":         func(c *campaign) { since(&c.paused, 1) },
		"not_started":    func(c *campaign) { since(&c.starts, time.Now().Add(time.Minute).UnixMilli()) },
		"ended":          func(c *campaign) { since(&c.ends, 1) },
	} {
		for broken, change := range map[string]func(c *campaign){"": sound, "was answered " + code: func(*campaign) {}} {
			rd, l := past(change)
			no := try{started: time.Now().Add(-time.Second), ended: time.Now(), code: code}
			l.requests = []*request{{c: l.campaign, user: "u", quantity: 1, tries: []try{no}}}
			rd.checkRefusals(l)
			requireBroken(t, rd, broken)
		}
	}
}

func TestCheckOfExpiryTells(t *testing.T) {
	t.Parallel()
	for broken, hold := range map[string]time.Duration{"": time.Minute, "and a hold of 2m0s": 2 * time.Minute, "and a hold of 0s": 0} {
		rd, l := past(func(c *campaign) { c.hold = hold })
		expires := models.NewTime(l.rows[0].At.Add(time.Minute))
		claim := models.Claim{ID: "claim", ClaimedAt: models.NewTime(l.rows[0].At), ExpiresAt: &expires}
		rd.checkEnds(l, &request{c: l.campaign}, &claim)
		requireBroken(t, rd, broken)
	}
}

// While Redis' clock is ahead, a user also has that hour's limit, but no
// more. The judged claims are retimed: both then have one time.
func TestCheckOfLimitsTells_InHoursOfRedis(t *testing.T) {
	t.Parallel()
	for ahead, broken := range map[time.Duration]string{2 * time.Hour: "", 0: "u 09h held 4 units of 3 per hour with seq 2"} {
		rd, l := past(func(c *campaign) {
			c.extra = &extraLimit{by: models.ByUser, per: models.PerHour, max: 3}
		})
		nine := time.Date(2026, 1, 1, 9, 30, 0, 0, time.UTC)
		second := *l.rows[0].Row
		second.Seq = 2
		l.rows[0].At, second.At = nine, nine.Add(ahead)
		l.rows = append(l.rows, row{Row: &second, at: l.rows[0].at})
		rd.checkExtra(l)
		requireBroken(t, rd, broken)
	}
}

func TestCheckOfTimesTells(t *testing.T) {
	t.Parallel()
	for broken, order := range map[string][2]int64{"": {1, 2}, "claim one, seq 2, was answered at": {2, 1}} {
		rd, l := past(func(*campaign) {})
		l.rows = nil
		// requested after the first was answered
		for i, id := range []string{"one", "two"} {
			asked := rd.open.Add(time.Duration(i) * time.Minute)
			t := try{started: asked, ended: asked.Add(time.Second), claim: &models.Claim{ID: id}}
			l.requests = append(l.requests, &request{c: l.campaign, tries: []try{t}})
			l.rows = append(l.rows, row{Row: &oracle.Row{ID: id, Seq: order[i]}})
		}
		slices.SortFunc(l.rows, func(a, b row) int { return int(a.Seq - b.Seq) })
		rd.checkTimes(l)
		requireBroken(t, rd, broken)
	}
}

func TestChecksOfLinesTell(t *testing.T) {
	t.Parallel()
	out := event.Event{Type: event.CampaignSoldOut, ID: "claim:sold_out"}
	low := event.Event{Type: event.CampaignLowStock, ID: "claim:low_stock"}
	by := func(change string) event.Event { return event.Event{Type: out.Type, ID: change + ":sold_out"} }
	for _, one := range []struct {
		broken    string
		published []event.Event
	}{
		{"", []event.Event{low, out}},
		{"", []event.Event{low, by("change"), by("change")}},
		{"campaign.sold_out is published 2 times", []event.Event{low, out, out}},
		{"2 changes crossed a line, 1 were made", []event.Event{low, by("one"), by("two")}},
		{"not each line was published", []event.Event{low}},
		{"not each line was published", []event.Event{out}},
	} {
		rd, l := past(func(c *campaign) { c.lowAt = 3 })
		rd.checkLines(l, one.published)
		requireBroken(t, rd, one.broken)
	}
}

func requireBroken(t *testing.T, rd *round, words string) {
	t.Helper()
	if words == "" {
		require.Empty(t, rd.report.Broken)
		return
	}
	require.Len(t, rd.report.Broken, 1)
	require.Contains(t, rd.report.Broken[0], words)
}
