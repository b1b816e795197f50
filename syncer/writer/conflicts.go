package writer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/models"
)

// seqKey is a claim's number in its campaign, or in its shard of it. No two claims share one.
type seqKey struct {
	campaignID string
	shard      int
	seq        int64
}

func seqKeyOf(r *row) seqKey {
	return seqKey{campaignID: r.event.CampaignID, shard: r.event.Shard, seq: r.event.Seq}
}

// selectKnown reads the columns of claims that tell whether a claim is that of an event.
const selectKnown = "SELECT id, campaign_id, shard, seq, user_id, quantity FROM claims WHERE "

func scanKnown(scan func(...any) error) (k models.ClaimRow, err error) {
	err = scan(&k.ID, &k.CampaignID, &k.Shard, &k.Seq, &k.UserID, &k.Quantity)
	return k, err
}

// isOf reports whether a claim is that of an event. A repair may have given it another seq.
func isOf(k *models.ClaimRow, e *models.Event) bool {
	return k.ID == e.ID && k.CampaignID == e.CampaignID && k.Shard == e.Shard && k.UserID == e.UserID && k.Quantity == e.Quantity
}

// finding is what a check found about a row. Without any, the row may be written.
type finding struct {
	written      bool   // MySQL has it
	kind, reason string // why it must be parked
}

// check reads what it needs about the rows of a batch, and returns a function that judges each of them.
type check func() (judge func(*row) finding, err error)

// conflicts finds the rows that keep a batch from being written.
type conflicts struct {
	w    *Writer
	ctx  context.Context //nolint:containedctx // lives as long as one call of resolveConflicts
	rows []*row
}

// resolveConflicts finds out why a batch clashes, and returns the rows that can still be written. Claims that MySQL has are
// dropped; claims that contradict one that MySQL has, or belong to no campaign, are parked. It reads what is committed: an INSERT
// that met a row of another transaction has waited for the end of that.
func (w *Writer) resolveConflicts(ctx context.Context, rows []*row) ([]*row, error) {
	claims, transfers := split(rows)
	s := &conflicts{w: w, ctx: ctx, rows: claims}
	transfers, err := s.freshTransfers(transfers)
	if err != nil {
		return nil, err
	}
	if err := s.run(s.findWritten, s.findUnknownCampaign, s.findDuplicates); err != nil {
		return nil, err
	}
	if len(s.rows)+len(transfers) == len(rows) {
		err = s.run(s.findSeqTaken, s.findPacketTaken)
	}
	return append(s.rows, transfers...), err
}

// run runs checks one after the other, each over the rows that the ones before it left.
func (s *conflicts) run(checks ...check) error {
	for _, check := range checks {
		if len(s.rows) == 0 {
			return nil
		}
		judge, err := check()
		if err != nil {
			return err
		}
		var left []*row
		for _, r := range s.rows {
			switch found := judge(r); {
			case found.written:
				s.w.metrics.replays.Inc()
			case found.kind != "":
				if err := s.w.park(s.ctx, r, found.kind, found.reason); err != nil {
					return err
				}
			default:
				left = append(left, r)
			}
		}
		s.rows = left
	}
	return nil
}

// findWritten finds claims that MySQL has, and claims whose id a different claim has.
func (s *conflicts) findWritten() (func(*row) finding, error) {
	ids := make([]any, len(s.rows))
	for i, r := range s.rows {
		ids[i] = r.event.ID
	}
	there := make(map[string]models.ClaimRow, len(ids))
	err := s.claims("id IN "+sqlstore.Marks(len(ids)), ids, func(k models.ClaimRow) { there[k.ID] = k })
	return func(r *row) finding {
		k, exists := there[r.event.ID]
		switch {
		case !exists:
			return finding{}
		case isOf(&k, &r.event):
			return finding{written: true}
		}
		return finding{kind: parkedID, reason: fmt.Sprintf("a different claim has this id: seq %d of %s", k.Seq, k.CampaignID)}
	}, err
}

// findUnknownCampaign finds claims of campaigns that MySQL does not have, and those of campaigns that have claims in the archive: these
// have had all their rows, so an event that comes again is known.
func (s *conflicts) findUnknownCampaign() (func(*row) finding, error) {
	var ids []any
	for id := range sumOf(s.rows) {
		ids = append(ids, id)
	}
	archived := make(map[string]bool, len(ids)) // by lot that there is
	query := "SELECT id, archived_claims > 0 FROM lots WHERE id IN " + sqlstore.Marks(len(ids))
	err := s.read(query, ids, func(scan func(...any) error) error {
		var id string
		var is bool
		err := scan(&id, &is)
		archived[id] = is
		return err
	})
	return func(r *row) finding {
		isArchived, exists := archived[r.event.LotID()]
		if exists {
			return finding{written: isArchived}
		}
		return finding{kind: parkedUnknownCampaign, reason: "no such campaign"}
	}, err
}

// findDuplicates finds claims that have the id or the seq of an earlier one of the batch.
func (s *conflicts) findDuplicates() (func(*row) finding, error) {
	ids := make(map[string]bool, len(s.rows))
	seqs := make(map[seqKey]string, len(s.rows))
	return func(r *row) finding {
		if ids[r.event.ID] {
			return finding{kind: parkedID, reason: "a different claim has this id: in the same batch"}
		}
		if other, taken := seqs[seqKeyOf(r)]; taken {
			return seqTaken(r, other)
		}
		ids[r.event.ID] = true
		seqs[seqKeyOf(r)] = r.event.ID
		return finding{}
	}, nil
}

// findSeqTaken finds claims whose seq a different claim has in MySQL.
func (s *conflicts) findSeqTaken() (func(*row) finding, error) {
	seqs := make(map[string][]any)
	for _, r := range s.rows {
		seqs[r.event.LotID()] = append(seqs[r.event.LotID()], r.event.Seq)
	}
	owners := make(map[seqKey]string)
	for _, id := range slices.Sorted(maps.Keys(seqs)) {
		campaignID, shard := models.SplitShardID(id)
		args := append([]any{campaignID, shard}, seqs[id]...)
		err := s.claims("campaign_id = ? AND shard = ? AND seq IN "+sqlstore.Marks(len(seqs[id])), args, func(k models.ClaimRow) {
			owners[seqKey{campaignID: k.CampaignID, shard: k.Shard, seq: k.Seq}] = k.ID
		})
		if err != nil {
			return nil, err
		}
	}
	return func(r *row) finding {
		other, taken := owners[seqKeyOf(r)]
		if !taken || other == r.event.ID { // its own row: just committed, the next search drops it
			return finding{}
		}
		return seqTaken(r, other)
	}, nil
}

func seqTaken(r *row, other string) finding {
	return finding{kind: parkedSeqTaken, reason: fmt.Sprintf("claim %s has seq %d of this campaign", other, r.event.Seq)}
}

// claims reads claims by a condition that has no more arguments than a batch has rows, and two.
func (s *conflicts) claims(where string, args []any, take func(models.ClaimRow)) error {
	return s.read(selectKnown+where, args, func(scan func(...any) error) error {
		k, err := scanKnown(scan)
		take(k)
		return err
	})
}

// read runs a query until it succeeds or ctx ends. A row may be taken more than once.
func (s *conflicts) read(query string, args []any, take func(scan func(...any) error) error) error {
	return sqlstore.RetryForever(s.ctx, s.w.noticeRetry, func() error {
		ctx, cancel := context.WithTimeout(s.ctx, s.w.flushTimeout)
		defer cancel()
		if err := sqlstore.ScanAll(ctx, s.w.db.ConnPool, query, args, take); err != nil {
			return fmt.Errorf("writer: look up claims: %w", err)
		}
		return nil
	})
}
