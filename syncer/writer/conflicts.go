package writer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"dibs/internal/sqlstore"
)

// place is where a claim stands in the order of its campaign; two claims never share one.
type place struct {
	campaignID string
	seq        int64
}

func placeOf(r *row) place { return place{campaignID: r.event.CampaignID, seq: r.event.Seq} }

// known is a claim that MySQL has.
type known struct {
	id, campaignID, userID string
	seq, quantity          int64
}

func (k *known) is(r *row) bool {
	e := &r.event
	return k.id == e.ID && k.campaignID == e.CampaignID && k.seq == e.Seq && k.userID == e.UserID && k.quantity == e.Quantity
}

// sift finds out why a batch would not go in, and returns the rows that may still do: claims that are there already are
// dropped, claims that contradict one that is there, or belong to no campaign, are parked. It reads what is committed:
// an INSERT that ran into another transaction's row has waited for its end.
func (w *Writer) resolveConflicts(ctx context.Context, rows []*row) ([]*row, error) {
	s := &conflicts{w: w, ctx: ctx, rows: rows}
	s.run(s.dropKnown)
	s.run(s.parkUnknownCampaign)
	s.run(s.parkDuplicates)
	if len(s.rows) == len(rows) {
		s.run(s.parkSeqTaken)
		s.run(s.parkPacketTaken)
	}
	return s.rows, s.err
}

// sieve goes over a batch in several passes; the first error ends it.
type conflicts struct {
	w    *Writer
	ctx  context.Context //nolint:containedctx // lives as long as one call of sift
	rows []*row
	err  error
}

// run keeps the rows for which keep, made by a pass, is true.
func (s *conflicts) run(pass func() (keep func(*row) (bool, error), err error)) {
	if s.err != nil || len(s.rows) == 0 {
		return
	}
	keep, err := pass()
	if err != nil {
		s.err = err
		return
	}
	var kept []*row
	for _, r := range s.rows {
		ok, err := keep(r)
		if err != nil {
			s.err = err
			return
		}
		if ok {
			kept = append(kept, r)
		}
	}
	s.rows = kept
}

// dropKnown drops claims that are in MySQL, and parks those whose id a different claim has.
func (s *conflicts) dropKnown() (func(*row) (bool, error), error) {
	ids := make([]any, len(s.rows))
	for i, r := range s.rows {
		ids[i] = r.event.ID
	}
	there := make(map[string]known, len(ids))
	err := s.claims("id IN (?"+strings.Repeat(",?", len(ids)-1)+")", ids, func(k known) { there[k.id] = k })
	return func(r *row) (bool, error) {
		k, is := there[r.event.ID]
		switch {
		case !is:
			return true, nil
		case k.is(r):
			s.w.metrics.replays.Inc()
			return false, nil
		}
		return false, s.w.park(s.ctx, r, parkedID, fmt.Sprintf("a different claim has this id: seq %d of %s", k.seq, k.campaignID))
	}, err
}

// parkStrangers parks claims of campaigns that MySQL does not know.
func (s *conflicts) parkUnknownCampaign() (func(*row) (bool, error), error) {
	var ids []any
	for id := range sumOf(s.rows) {
		ids = append(ids, id)
	}
	there := make(map[string]bool, len(ids))
	query := "SELECT id FROM campaigns WHERE id IN (?" + strings.Repeat(",?", len(ids)-1) + ")"
	err := s.read(query, ids, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		there[id] = true
		return err
	})
	return func(r *row) (bool, error) {
		if there[r.event.CampaignID] {
			return true, nil
		}
		return false, s.w.park(s.ctx, r, parkedUnknownCampaign, "no such campaign")
	}, err
}

// parkTwins parks claims that share their id or their place with an earlier one of the batch.
func (s *conflicts) parkDuplicates() (func(*row) (bool, error), error) {
	ids, places := make(map[string]bool, len(s.rows)), make(map[place]string, len(s.rows))
	return func(r *row) (bool, error) {
		if ids[r.event.ID] {
			return false, s.w.park(s.ctx, r, parkedID, "a different claim has this id: in the same batch")
		}
		if other, taken := places[placeOf(r)]; taken {
			return false, s.w.park(s.ctx, r, parkedSeqTaken, placeTaken(r, other))
		}
		ids[r.event.ID], places[placeOf(r)] = true, r.event.ID
		return true, nil
	}, nil
}

// parkDisplaced parks claims whose place a different one has in MySQL.
func (s *conflicts) parkSeqTaken() (func(*row) (bool, error), error) {
	places := make(map[place]string)
	for campaignID, seqs := range seqsOf(s.rows) {
		where := "campaign_id = ? AND shard = 0 AND seq IN (?" + strings.Repeat(",?", len(seqs)-1) + ")"
		err := s.claims(where, append([]any{campaignID}, seqs...), func(k known) {
			places[place{campaignID: k.campaignID, seq: k.seq}] = k.id
		})
		if err != nil {
			return nil, err
		}
	}
	return func(r *row) (bool, error) {
		other, taken := places[placeOf(r)]
		if !taken || other == r.event.ID { // its own: committed just now, the next round drops it
			return true, nil
		}
		return false, s.w.park(s.ctx, r, parkedSeqTaken, placeTaken(r, other))
	}, nil
}

func placeTaken(r *row, other string) string {
	return fmt.Sprintf("claim %s has seq %d of this campaign", other, r.event.Seq)
}

func seqsOf(rows []*row) map[string][]any {
	seqs := make(map[string][]any)
	for _, r := range rows {
		seqs[r.event.CampaignID] = append(seqs[r.event.CampaignID], r.event.Seq)
	}
	return seqs
}

// claims reads claims by a condition, for as many arguments as a batch may have.
func (s *conflicts) claims(where string, args []any, take func(known)) error {
	query := "SELECT id, campaign_id, seq, user_id, quantity FROM claims WHERE " + where
	return s.read(query, args, func(scan func(...any) error) error {
		var k known
		err := scan(&k.id, &k.campaignID, &k.seq, &k.userID, &k.quantity)
		take(k)
		return err
	})
}

// read runs a query until it succeeds or ctx ends. A row may be taken more than once.
func (s *conflicts) read(query string, args []any, take func(scan func(...any) error) error) error {
	return sqlstore.RetryForever(s.ctx, s.w.noticeRetry, func() error {
		ctx, cancel := context.WithTimeout(s.ctx, s.w.cfg.FlushTimeout)
		defer cancel()
		rows, err := s.w.db.QueryContext(ctx, query, slices.Clone(args)...)
		if err != nil {
			return fmt.Errorf("syncer: flush: look up: %w", err)
		}
		defer func() { _ = rows.Close() }() // rows.Err says what matters
		for rows.Next() {
			if err := take(rows.Scan); err != nil {
				return fmt.Errorf("syncer: flush: look up: %w", err)
			}
		}
		return rows.Err()
	})
}
