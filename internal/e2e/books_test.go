package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testkit/oracle"
	"dibs/models"
)

// drainWithin limits the time from the last claim to its row.
// Dead consumers' entries stay pending for 5 s.
const drainWithin = 60 * time.Second

// books are four views of one campaign: the crowd's, Redis',
// MySQL's and a stream reader's.
type books struct {
	servers
	campaign campaign
	tally    crowd.Tally
	finance  *reader
	url      string // of an API
	soldOut  bool   // the crowd wanted all of it
}

type report []string

func (r *report) addf(format string, args ...any) {
	if len(*r) < faultsMax {
		*r = append(*r, fmt.Sprintf(format, args...))
	}
}

// checkBooks fails the test if the views differ.
func (s *system) checkBooks(c campaign, tally crowd.Tally, soldOut bool) {
	s.t.Helper()
	b := books{servers: s.servers, campaign: c, tally: tally, finance: s.finance, url: s.apis[0].url, soldOut: soldOut}
	require.Empty(s.t, b.violations(s.t.Context()))
}

// violations waits for the drain, within a time limit, and lists
// where the views differ.
func (b books) violations(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, drainWithin+30*time.Second)
	defer cancel()
	var r report
	b.crowdItself(&r)
	if err := b.drain(ctx); err != nil {
		r.addf("not drained: %v", err)
	}
	rows, err := oracle.Read(ctx, b.db, b.campaign.ID)
	if err != nil {
		return append(r, err.Error())
	}
	r.compare(rows, b.campaign, b.tally)
	rows.Redis(ctx, b.scripts, r.addf)
	if rows.Total != b.campaign.Total || b.soldOut && rows.Live != rows.Total {
		r.addf("%d units of %d are taken, and %v that more than %d were wanted", rows.Live, rows.Total, b.soldOut, b.campaign.Total)
	}
	events, faults := b.finance.of(b.campaign.ID)
	for _, fault := range faults {
		r.addf("finance: %s", fault)
	}
	rows.Stream(slices.Collect(maps.Values(events)), r.addf)
	b.stock(ctx, &r)
	return r
}

// compare checks an unsharded campaign's rows against a crowd's replies.
func (r *report) compare(rows *oracle.Books, c campaign, tally crowd.Tally) {
	rows.Answers(answersOf(tally), r.addf)
	rows.Counters(r.addf)
	rows.Sequence(1, false, r.addf)
	rows.Limits(c.PerUser, 0, time.UTC, r.addf)
}

func answersOf(tally crowd.Tally) (all []oracle.Answer) {
	for _, c := range tally.Claims {
		all = append(all, oracle.Answer{User: c.UserID, Quantity: c.Quantity, Claim: &c})
	}
	for user, units := range tally.InDoubt {
		all = append(all, oracle.Answer{User: user, Mark: oracle.Mark(user, "key-"+user), Quantity: units, Unsure: true})
	}
	return all
}

// crowdItself checks a crowd's replies for impossible ones.
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
}

// drain waits until the group syncer is done, MySQL has every
// claim, and the reader has caught up.
func (b books) drain(ctx context.Context) error {
	deadline := time.Now().Add(drainWithin)
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
	if events, _ := b.finance.of(b.campaign.ID); int64(len(events)) < state.Seq {
		return fmt.Errorf("finance has %d of %d events", len(events), state.Seq)
	}
	return nil
}

func (b books) stock(ctx context.Context, r *report) {
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
	if len(b.tally.InDoubt) == 0 && stock.Claimed != b.tally.Units {
		r.addf("GET stock: %d claimed, the crowd was given %d", stock.Claimed, b.tally.Units)
	}
}

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

func (s *system) booksOf(id string) *oracle.Books {
	s.t.Helper()
	books, err := oracle.Read(s.t.Context(), s.db, id)
	require.NoError(s.t, err)
	return books
}

// book1 adds an accepted claim to a tally.
func book1(t testing.TB, tally *crowd.Tally, got reply) {
	t.Helper()
	require.NoError(t, got.err)
	require.Equal(t, http.StatusCreated, got.status, got.body)
	c := got.claim(t)
	tally.Claims[c.ID] = c
	tally.Accepted++
	tally.Units += c.Quantity
}
