package e2e

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/lua"
	"dibs/models"
)

// drainWithin is how long the last claim may take to its row. Dead consumers' entries rest for 5 s.
const drainWithin = 60 * time.Second

// books are four accounts of one campaign: the crowd's, Redis', MySQL's and those of readers of the stream.
type books struct {
	servers
	campaign campaign
	tally    crowd.Tally
	readers  map[string]*reader
	url      string // of an API; "" leaves GET stock out
	soldOut  bool   // the crowd wanted all of it
	refilled bool   // rows came back otherwise than by a flush
	within   time.Duration
}

// book is a row of claims.
type book struct {
	user     string
	quantity int64
	seq      int64
	status   string
	at       time.Time
}

// report is a list of what does not fit.
type report []string

func (r *report) addf(format string, args ...any) {
	if len(*r) < faultsMax {
		*r = append(*r, fmt.Sprintf(format, args...))
	}
}

func (r *report) equal(what string, a, b int64) {
	if a != b {
		r.addf("%s: %d and %d", what, a, b)
	}
}

// checkBooks fails the test when the accounts differ.
func (s *system) checkBooks(c campaign, tally crowd.Tally, soldOut bool) {
	s.t.Helper()
	wrong := s.books(c, tally, soldOut).violations(s.t.Context())
	require.Empty(s.t, wrong)
}

func (s *system) books(c campaign, tally crowd.Tally, soldOut bool) books {
	return books{
		servers: s.servers, campaign: c, tally: tally, readers: map[string]*reader{"finance": s.finance},
		url: s.apis[0].url, soldOut: soldOut, within: drainWithin,
	}
}

// violations lists where the accounts differ, once everything is drained or the time for that is over; none is what every
// test wants.
func (b books) violations(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, b.within+30*time.Second)
	defer cancel()
	var r report
	b.crowdItself(&r)
	if err := b.drain(ctx); err != nil {
		r.addf("not drained: %v", err)
	}
	rows, err := b.rows(ctx)
	if err != nil {
		return append(r, err.Error())
	}
	b.rowsAndCrowd(&r, rows)
	b.limits(&r, rows)
	b.sequence(&r, rows)
	b.redisAndSQL(ctx, &r, rows)
	b.streams(ctx, &r, rows)
	b.stock(ctx, &r)
	return r
}

// crowdItself looks at what the crowd was told for answers that can't be.
func (b books) crowdItself(r *report) {
	for _, fault := range b.tally.Faults {
		r.addf("crowd: %s", fault)
	}
	known := []string{"", "unreached", "sold_out", "user_limit", "user_day_limit", "unavailable", "outcome_unknown"}
	for code, n := range b.tally.Refused {
		if !slices.Contains(known, code) {
			r.addf("crowd: %d refusals %q", n, code)
		}
	}
	if b.tally.Units > b.campaign.Total {
		r.addf("oversold: the crowd was given %d units of %d", b.tally.Units, b.campaign.Total)
	}
	seqs := map[int64]string{}
	for id, c := range b.tally.Claims {
		if other, twice := seqs[c.Seq]; twice {
			r.addf("crowd: claims %s and %s both have seq %d", id, other, c.Seq)
		}
		seqs[c.Seq] = id
	}
}

// drain waits until the group syncer has nothing left and MySQL has every claim, and the readers have caught up.
func (b books) drain(ctx context.Context) error {
	deadline := time.Now().Add(b.within)
	for {
		err := b.drained(ctx)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollEvery):
		}
	}
}

func (b books) stream() string { return lua.StreamKey(lua.PartitionOf(b.campaign.ID, b.partitions)) }

func (b books) drained(ctx context.Context) error {
	state, err := b.scripts.State(ctx, b.campaign.ID)
	if err != nil {
		return err
	}
	var synced int64
	if err := b.db.QueryRowContext(ctx, "SELECT synced_seq FROM campaigns WHERE id = ?", b.campaign.ID).Scan(&synced); err != nil {
		return err
	}
	if synced != state.Seq {
		return fmt.Errorf("seq is %d in Redis and %d in MySQL", state.Seq, synced)
	}
	for name, reader := range b.readers {
		if events, _ := reader.of(b.campaign.ID); int64(len(events)) < state.Seq {
			return fmt.Errorf("%s has %d of %d events", name, len(events), state.Seq)
		}
	}
	return nil
}

func (b books) rows(ctx context.Context) (map[string]book, error) {
	return readRows(ctx, b.db, b.campaign.ID)
}

func readRows(ctx context.Context, db *sql.DB, campaignID string) (map[string]book, error) {
	found, err := db.QueryContext(ctx, "SELECT id, user_id, quantity, seq, status, claimed_at FROM claims WHERE campaign_id = ?", campaignID)
	if err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	defer func() { _ = found.Close() }()
	rows := map[string]book{}
	for found.Next() {
		var id string
		var row book
		if err := found.Scan(&id, &row.user, &row.quantity, &row.seq, &row.status, &row.at); err != nil {
			return nil, fmt.Errorf("claims: %w", err)
		}
		rows[id] = row
	}
	return rows, found.Err()
}

// rowsAndCrowd: a yes is a row, and a row is a yes, except for those who never learnt.
func (b books) rowsAndCrowd(r *report, rows map[string]book) {
	missing := 0
	for id, c := range b.tally.Claims {
		row, there := rows[id]
		want := book{c.UserID, c.Quantity, c.Seq, "claimed", c.ClaimedAt.Time}
		switch {
		case !there:
			missing++
		case !row.at.Equal(want.at) || row.user != want.user || row.quantity != want.quantity || row.seq != want.seq || row.status != want.status:
			r.addf("claim %s: the crowd was told %+v, the row says %+v", id, want, row)
		}
	}
	if missing > 0 {
		r.addf("%d accepted claims have no row", missing)
	}
	doubts := map[string]bool{}
	for id, row := range rows {
		if _, accepted := b.tally.Claims[id]; accepted {
			continue
		}
		asked, inDoubt := b.tally.InDoubt[row.user]
		switch {
		case !inDoubt:
			r.addf("row %s %+v: no one was told of it and no one is in doubt", id, row)
		case asked != row.quantity:
			r.addf("row %s %+v: the user asked for %d", id, row, asked)
		case doubts[row.user]:
			r.addf("row %s %+v: the user asked once and has two", id, row)
		}
		doubts[row.user] = true
	}
}

func (b books) limits(r *report, rows map[string]book) {
	zone, err := models.LoadZone(cmp.Or(b.campaign.TimeZone, "UTC"))
	if err != nil {
		r.addf("zone: %v", err)
		return
	}
	ever, daily := map[string]int64{}, map[string]int64{}
	for _, row := range rows {
		ever[row.user] += row.quantity
		daily[row.user+" on "+row.at.In(zone).Format(time.DateOnly)] += row.quantity
	}
	overLimit(r, "per_user", ever, b.campaign.PerUser)
	overLimit(r, "per_user_per_day", daily, b.campaign.PerUserPerDay)
}

func overLimit(r *report, what string, units map[string]int64, most int64) {
	for who, n := range units {
		if most > 0 && n > most {
			r.addf("%s: %s has %d of %d", what, who, n, most)
		}
	}
}

// sequence: the rows' seq are 1 to n.
func (b books) sequence(r *report, rows map[string]book) {
	var seqs []int64
	for _, row := range rows {
		seqs = append(seqs, row.seq)
	}
	slices.Sort(seqs)
	for i, seq := range seqs {
		if seq != int64(i)+1 {
			r.addf("seq of the rows: a hole or a double at %d, which is the %d. of %d", seq, i+1, len(seqs))
			return
		}
	}
}

func unitsOf(rows map[string]book) (units int64) {
	for _, row := range rows {
		units += row.quantity
	}
	return units
}

func (b books) redisAndSQL(ctx context.Context, r *report, rows map[string]book) {
	state, err := b.scripts.State(ctx, b.campaign.ID)
	if err != nil {
		r.addf("%v", err)
		return
	}
	units, total := unitsOf(rows), b.campaign.Total
	r.equal("taken in Redis, units of the rows", state.Taken, units)
	r.equal("seq in Redis, rows", state.Seq, int64(len(rows)))
	r.equal("remaining in Redis, total less taken", state.Remaining(), total-state.Taken)
	if state.Taken > total {
		r.addf("oversold: %d of %d units are taken", state.Taken, total)
	}
	if b.soldOut {
		r.equal("taken, total of a campaign that more was wanted of", state.Taken, total)
	}
	var claimed, remaining, synced, sqlTotal int64
	err = b.db.QueryRowContext(ctx, "SELECT total, claimed, remaining, synced_seq FROM campaigns WHERE id = ?", b.campaign.ID).
		Scan(&sqlTotal, &claimed, &remaining, &synced)
	if err != nil {
		r.addf("campaigns: %v", err)
	}
	r.equal("total in MySQL, total", sqlTotal, total)
	r.equal("claimed in MySQL, units of the rows", claimed, units)
	r.equal("remaining in MySQL, total less units of the rows", remaining, total-units)
	r.equal("synced_seq, rows", synced, int64(len(rows)))
	b.flushes(ctx, r, rows)
}

// flushes: the books move by the sums of stock_flushes and by nothing else.
func (b books) flushes(ctx context.Context, r *report, rows map[string]book) {
	var units, claims, parked int64
	err := errors.Join(
		b.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(units), 0), COALESCE(SUM(claims), 0) FROM stock_flushes WHERE campaign_id = ?",
			b.campaign.ID).Scan(&units, &claims),
		b.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM parked_events").Scan(&parked),
	)
	if err != nil {
		r.addf("flushes: %v", err)
	}
	if !b.refilled {
		r.equal("units of stock_flushes, of the rows", units, unitsOf(rows))
		r.equal("claims of stock_flushes, rows", claims, int64(len(rows)))
	}
	r.equal("parked events, none", parked, 0)
}

// streams: every reader saw each claim, as the row says it, and the group syncer has nothing left.
func (b books) streams(ctx context.Context, r *report, rows map[string]book) {
	for _, name := range slices.Sorted(maps.Keys(b.readers)) {
		events, faults := b.readers[name].of(b.campaign.ID)
		for _, fault := range faults {
			r.addf("%s: %s", name, fault)
		}
		for id, row := range rows {
			e, seen := events[id]
			switch {
			case !seen:
				r.addf("%s never saw claim %s, seq %d", name, id, row.seq)
			case e.UserID != row.user || e.Quantity != row.quantity || e.Seq != row.seq || !e.At.Equal(row.at):
				r.addf("claim %s: %s saw %+v, the row says %+v", id, name, e, row)
			}
		}
		r.equal("events that "+name+" saw, rows", int64(len(events)), int64(len(rows)))
	}
	groups, err := b.rdb.XInfoGroups(ctx, b.stream()).Result()
	if err != nil {
		r.addf("group syncer: %v", err)
		return
	}
	for _, g := range groups {
		if g.Name == "syncer" {
			r.equal("pending of the group syncer, none", g.Pending, 0)
		}
	}
}

func (b books) stock(ctx context.Context, r *report) {
	if b.url == "" {
		return
	}
	stock, err := stockOf(ctx, b.url, b.campaign.ID)
	if err != nil {
		r.addf("GET stock: %v", err)
		return
	}
	want := models.Stock{
		CampaignID: b.campaign.ID, Total: b.campaign.Total, Claimed: stock.Claimed, Synced: stock.Claimed,
		Remaining: b.campaign.Total - stock.Claimed, AsOf: stock.AsOf,
	}
	if stock != want {
		r.addf("GET stock: %+v, want %+v", stock, want)
	}
	if len(b.tally.InDoubt) == 0 {
		r.equal("claimed by GET stock, units the crowd was given", stock.Claimed, b.tally.Units)
	}
}

// merged adds up what several crowds were told.
func merged(tallies ...crowd.Tally) crowd.Tally {
	all := crowd.Tally{Refused: map[string]int{}, Claims: map[string]models.Claim{}, InDoubt: map[string]int64{}}
	for _, one := range tallies {
		all.Sent, all.Accepted, all.Units = all.Sent+one.Sent, all.Accepted+one.Accepted, all.Units+one.Units
		all.Replayed, all.Unknown, all.Unready = all.Replayed+one.Replayed, all.Unknown+one.Unknown, all.Unready+one.Unready
		all.Faults = append(all.Faults, one.Faults...)
		for code, n := range one.Refused {
			all.Refused[code] += n
		}
		maps.Copy(all.Claims, one.Claims)
		maps.Copy(all.InDoubt, one.InDoubt)
	}
	return all
}

// watch looks at a campaign again and again, as DBAs and operators do, until the function it returns is called, which says what
// it saw that must never be seen, not for a moment. Servers that are away show nothing.
func (s *system) watch(c campaign) (seen func() []string) {
	s.t.Helper()
	const every = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var r report
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			s.look(ctx, &r, c, s.apis[i%len(s.apis)].url)
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	})
	stop := func() { cancel(); wg.Wait() }
	s.t.Cleanup(stop)
	return func() []string { stop(); return r }
}

func (s *system) look(ctx context.Context, r *report, c campaign, url string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if stock, err := stockOf(ctx, url, c.ID); err == nil {
		if stock.Drift != 0 || stock.Claimed+stock.Remaining != c.Total || stock.Claimed > c.Total || stock.Synced+stock.Backlog != stock.Claimed {
			r.addf("GET stock showed %+v", stock)
		}
	}
	var inSQL int64 // read first: Redis only goes down in the meantime
	if s.db.QueryRowContext(ctx, "SELECT remaining FROM campaigns WHERE id = ?", c.ID).Scan(&inSQL) != nil {
		return
	}
	if state, err := s.scripts.State(ctx, c.ID); err == nil && (inSQL < state.Remaining() || state.Taken > c.Total) {
		r.addf("remaining was %d in MySQL while Redis said %d, %d of %d taken", inSQL, state.Remaining(), state.Taken, c.Total)
	}
}

// requireViolation fails the test unless one of the violations reports this.
func requireViolation(t testing.TB, found []string, words string) {
	t.Helper()
	require.True(t, slices.ContainsFunc(found, func(line string) bool { return strings.Contains(line, words) }),
		"no violation tells of %q: %q", words, found)
}
