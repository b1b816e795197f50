package ledger

import (
	"context"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
)

// book is a campaign whose ledger is read.
type book struct {
	id, currency string
	archivable   bool      // its rows may be archived while they are read
	changed      time.Time // last change of its counters, in any shard
	lots         []*lot

	// the ledger has every event before it; reading may lower it,
	// see lotSource
	upto      time.Time
	booked    time.Time     // the same, without reading
	parked    bool          // it waits for a parked claim
	discarded []event.Event // parked claims that were given up: they have no row
}

// lot is a campaign or one of its shards. It has its own seq.
type lot struct {
	campaignID string
	shard      int
	partition  int
	synced     int64
	highest    int64     // highest seq in claims
	highestAt  time.Time // time of that row
	archived   int64     // highest seq in claims_archive
	parked     int64     // parked claims below highest
	unordered  int64     // up to this seq, times may not rise with seq

	// gapsFrom is a claim time. From it on, a missing seq may be that of a
	// claim still in transit. A claim missing before it was given up.
	gapsFrom time.Time
}

// ever is later than any claim.
func ever() time.Time { return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }

// books reads those of the campaigns that exist, and how far the
// ledger of each is complete.
func (r *Reader) books(ctx context.Context, ids []string) (map[string]*book, error) {
	streams, err := r.streams(ctx) // read before the rows, which are then at least as new
	if err != nil {
		return nil, err
	}
	found, err := r.lots(ctx, ids)
	if err != nil {
		return nil, err
	}
	// read after the rows: a claim not parked by then has its row
	if err := r.parked(ctx, found); err != nil {
		return nil, err
	}
	var last time.Time
	for _, b := range found {
		for _, l := range b.lots {
			b.bound(l, streams[l.partition])
		}
		if b.upto.After(last) {
			last = b.upto
		}
	}
	decided, err := moveBound(ctx, r.db, last)
	if err != nil {
		return nil, err
	}
	for _, b := range found {
		b.end(decided.Add(time.Millisecond))
	}
	return found, nil
}

// end lowers the end of the ledger to a time.
func (b *book) end(at time.Time) {
	if at.Before(b.upto) {
		b.upto = at
	}
	if at.Before(b.booked) {
		b.booked = at
	}
}

// bound ends the ledger where claims of a lot may be in transit.
// Claims are stored up to the later of two times: that of the
// highest row, if no seq below it is missing, and the time up to
// which MySQL last had every claim of the stream.
func (b *book) bound(l *lot, recorded time.Time) {
	l.gapsFrom = recorded
	upto := recorded
	booked := recorded
	if l.highestAt.After(recorded) {
		upto = l.highestAt
	}
	if l.highest <= l.synced+l.parked { // no seq below highest is in transit
		l.gapsFrom = ever()
		booked = upto
	}
	if upto.Before(b.upto) {
		b.upto = upto
	}
	if booked.Before(b.booked) {
		b.booked = booked
	}
}

// streams reads, by partition, the time up to which every claim
// of the stream has its row or is parked.
func (r *Reader) streams(ctx context.Context) (map[int]time.Time, error) {
	var rows []stored.StreamRecord
	if err := r.db.WithContext(ctx).Where("state = ?", event.PartitionOK).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("ledger: streams: %w", err)
	}
	known := make(map[int]time.Time, len(rows))
	for i := range rows {
		known[rows[i].Partition] = rows[i].CompleteAt
	}
	return known, nil
}

// lots reads campaigns with their lots in one statement, so that
// counters and rows are of one moment.
func (r *Reader) lots(ctx context.Context, ids []string) (map[string]*book, error) {
	const rows = " WHERE c.campaign_id = lots.campaign_id AND c.shard = lots.shard"
	query := "SELECT campaign_id, shard, shards, partition_no, currency, synced_seq + lost_claims + given_up_claims " +
		"AS synced_seq, updated_at," +
		" closed_told_at IS NOT NULL AS archivable," +
		" (SELECT COALESCE(MAX(seq), 0) FROM claims c" + rows + ") AS highest," +
		" (SELECT COALESCE(MAX(seq), 0) FROM claims_archive c" + rows + ") AS archived," +
		" (SELECT claimed_at FROM claims c" + rows + " ORDER BY seq DESC LIMIT 1) AS highest_at," +
		" (SELECT unordered_upto FROM lots c" + rows + ") AS unordered," +
		" COUNT(*) OVER () AS all_rows FROM defined_lots AS lots WHERE campaign_id IN ?"
	var all []struct {
		CampaignID, Currency         string
		Shard, Shards, PartitionNo   int
		SyncedSeq, Highest, Archived int64
		Unordered                    int64
		AllRows                      int
		UpdatedAt                    time.Time
		HighestAt                    *time.Time
		Archivable                   bool
	}
	if err := r.db.WithContext(ctx).Raw(query, ids).Scan(&all).Error; err != nil {
		return nil, fmt.Errorf("ledger: lots: %w", err)
	}
	if len(all) > 0 && len(all) != all[0].AllRows {
		return nil, fmt.Errorf("ledger: %w: lots", sqlstore.ErrShort)
	}
	found := make(map[string]*book, len(ids))
	for i := range all {
		row := &all[i]
		b := found[row.CampaignID]
		if b == nil {
			b = &book{id: row.CampaignID, upto: ever(), booked: ever()}
			found[b.id] = b
		}
		if row.UpdatedAt.After(b.changed) {
			b.changed = row.UpdatedAt
		}
		if row.Shard == 0 {
			b.currency = row.Currency
			b.archivable = row.Archivable
		}
		if row.Shard == 0 && row.Shards > 1 {
			continue // it has no claims
		}
		l := &lot{
			campaignID: b.id, shard: row.Shard, partition: row.PartitionNo, synced: row.SyncedSeq, highest: row.Highest, archived: row.Archived,
			unordered: row.Unordered,
		}
		if row.HighestAt != nil {
			l.highestAt = row.HighestAt.UTC()
		}
		b.lots = append(b.lots, l)
	}
	return found, nil
}

// parked reads the parked claims of campaigns. One that awaits a decision
// ends the ledger. One that was given up is an event of it.
func (r *Reader) parked(ctx context.Context, of map[string]*book) error {
	lots := make(map[string]*lot)
	var ids []string
	for _, b := range of {
		for _, l := range b.lots {
			id := models.ShardID(b.id, l.shard)
			lots[id] = l
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	const query = "SELECT payload, discarded_at IS NOT NULL AS discarded, COUNT(*) OVER () AS all_rows" +
		" FROM parked_events WHERE campaign_id IN ?"
	var rows []struct {
		Payload   []byte
		Discarded bool
		AllRows   int
	}
	if err := r.db.WithContext(ctx).Raw(query, ids).Scan(&rows).Error; err != nil {
		return fmt.Errorf("ledger: parked events: %w", err)
	}
	if len(rows) > 0 && len(rows) != rows[0].AllRows {
		return fmt.Errorf("ledger: %w: parked events", sqlstore.ErrShort)
	}
	for i := range rows {
		e, err := event.Decode(rows[i].Payload)
		if err != nil || e.Type != event.ClaimAccepted || lots[e.LotID()] == nil {
			continue // not a claim
		}
		b := of[e.CampaignID]
		l := lots[e.LotID()]
		if rows[i].Discarded {
			b.discarded = append(b.discarded, e)
			continue
		}
		if e.Seq <= l.highest {
			l.parked++
		}
		b.parked = b.parked || e.At.Before(b.upto)
		b.end(e.At.Time)
	}
	return nil
}
