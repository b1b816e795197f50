package writer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/adder"
)

// transfersPerInsert bounds the rows of one statement: each may name lua.PushMax packets.
const transfersPerInsert = 100

// PutTransfers inserts debits and credits into stock_moves. Errors: sqlstore.FailureDuplicate when a lot has a row of that number.
func PutTransfers(ctx context.Context, tx sqlstore.Execer, events []models.Event) error {
	for chunk := range slices.Chunk(events, transfersPerInsert) {
		s := sqlstore.NewStatement("INSERT INTO stock_moves"+
			" (campaign_id, shard, tseq, kind, peer, units, cumulative, packets, epoch, event_id, at) VALUES ", len(chunk)*sqlstore.RowBytes)
		for i := range chunk {
			e := &chunk[i]
			s.BeginRow(i)
			s.Text(e.CampaignID)
			s.Int(int64(e.Shard))
			s.Int(e.TSeq)
			s.Text(string(e.Type))
			s.Int(int64(e.Peer))
			s.Int(e.Quantity)
			s.Int(e.Cumulative)
			s.TextOrNull(strings.Join(e.IDs, ","))
			s.Int(e.Epoch)
			s.Text(e.ID)
			s.Time(e.At.Time)
			s.EndRow()
		}
		if _, err := tx.ExecContext(ctx, s.SQL(), s.Args...); err != nil {
			return fmt.Errorf("stock_moves: %w", err)
		}
	}
	return nil
}

// insertTransfers inserts the debits and credits that MySQL lacks.
func (a *application) insertTransfers(rows []*models.RawEvent) error {
	fresh, err := a.freshTransfers(rows)
	if err != nil {
		return fmt.Errorf("stock_moves: %w", err)
	}
	events := make([]models.Event, len(fresh))
	for i, r := range fresh {
		events[i] = r.Event
	}
	a.transfers = fresh
	return PutTransfers(a.ctx, a.tx, events)
}

// transferKey is the number of a transfer in its lot.
type transferKey struct {
	lot  adder.Lot
	tseq int64
}

// freshTransfers are those that MySQL lacks, each once. Their lots are locked.
func (a *application) freshTransfers(rows []*models.RawEvent) (fresh []*models.RawEvent, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	isThere := make(map[transferKey]bool)
	for lot, sum := range sumOf(rows) {
		if sum.Transfers == 0 {
			continue
		}
		query := "SELECT tseq FROM stock_moves WHERE campaign_id = ? AND shard = ? AND tseq >= ?" + sqlstore.InShareMode(a.tx)
		first := slices.MinFunc(rows, func(a, b *models.RawEvent) int { return cmp.Compare(a.TSeq, b.TSeq) }).TSeq
		err := sqlstore.ScanAll(a.ctx, a.tx, query, []any{lot.CampaignID, lot.Shard, first}, func(scan func(...any) error) error {
			key := transferKey{lot: lot}
			err := scan(&key.tseq)
			isThere[key] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, r := range rows {
		key := transferKey{adder.LotOf(&r.Event), r.TSeq}
		if isThere[key] {
			a.known++
			continue
		}
		isThere[key] = true
		fresh = append(fresh, r)
	}
	return fresh, nil
}
