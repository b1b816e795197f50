package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/models"
)

// errStaleTransfer says that a batch holds a debit or credit of a load that is over.
var errStaleTransfer = errors.New("writer: a debit or credit of an earlier load")

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

// split separates claims from transfers. Most batches have none of these, and are their own claims.
func split(rows []*row) (claims, transfers []*row) {
	if !slices.ContainsFunc(rows, func(r *row) bool { return r.event.IsTransfer() }) {
		return rows, nil
	}
	claims = make([]*row, 0, len(rows))
	for _, r := range rows {
		if r.event.IsTransfer() {
			transfers = append(transfers, r)
		} else {
			claims = append(claims, r)
		}
	}
	return claims, transfers
}

func insertTransfers(ctx context.Context, tx sqlstore.Execer, rows []*row) error {
	events := make([]models.Event, len(rows))
	for i, r := range rows {
		events[i] = r.event
	}
	return PutTransfers(ctx, tx, events)
}

// requireLoads fails with errStaleTransfer unless the lots of transfers are in the load that they are of. The rows of the lots are locked.
func requireLoads(ctx context.Context, q sqlstore.Querier, rows []*row) error {
	if len(rows) == 0 {
		return nil
	}
	loads := make(map[string]int64)
	args := make([]any, len(rows))
	for i, r := range rows {
		args[i] = r.event.LotID()
	}
	query := "SELECT id, epoch FROM lots WHERE id IN " + sqlstore.Marks(len(args))
	err := sqlstore.ScanAll(ctx, q, query, args, func(scan func(...any) error) error {
		var id string
		var epoch int64
		err := scan(&id, &epoch)
		loads[id] = epoch
		return err
	})
	if err == nil && slices.ContainsFunc(rows, func(r *row) bool { return loads[r.event.LotID()] != r.event.Epoch }) {
		err = sqlstore.Final(errStaleTransfer)
	}
	return err
}

// transferKey is the number of a transfer in its lot.
type transferKey struct {
	lotID string
	tseq  int64
}

// freshTransfers returns those transfers that MySQL lacks. Those of a load that is over are dropped: the next load goes by what Redis and
// the peers of the lot count.
func (s *conflicts) freshTransfers(rows []*row) (fresh []*row, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	first := slices.MinFunc(rows, func(a, b *row) int { return cmp.Compare(a.event.TSeq, b.event.TSeq) })
	args := []any{first.event.TSeq}
	for _, r := range rows {
		args = append(args, r.event.LotID())
	}
	isThere := make(map[transferKey]bool)
	loads := make(map[string]int64)
	err = s.read("SELECT l.id, l.epoch, COALESCE(m.tseq, 0) FROM lots l LEFT JOIN stock_moves m ON m.campaign_id = l.campaign_id"+
		" AND m.shard = l.shard AND m.tseq >= ? WHERE l.id IN "+sqlstore.Marks(len(rows)), args, func(scan func(...any) error) error {
		var key transferKey
		var epoch int64
		err := scan(&key.lotID, &epoch, &key.tseq)
		isThere[key] = true
		loads[key.lotID] = epoch
		return err
	})
	for _, r := range rows {
		key := transferKey{r.event.LotID(), r.event.TSeq}
		if isThere[key] || loads[key.lotID] != r.event.Epoch {
			s.w.metrics.replays.Inc()
			continue
		}
		isThere[key] = true
		fresh = append(fresh, r)
	}
	return fresh, err
}
