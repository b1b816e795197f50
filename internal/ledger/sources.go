package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
)

// source yields events in order.
type source struct {
	events   []event.Event
	position event.Place // of the first event
	// returns no events at the end; nil: the end was reached
	more func(ctx context.Context) (events []event.Event, err error)
}

// fill reads more when no event is left.
func (s *source) fill(ctx context.Context) error {
	if len(s.events) > 0 || s.more == nil {
		return nil
	}
	events, err := s.more(ctx)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	s.events = events
	if len(events) == 0 {
		s.more = nil
		return nil
	}
	s.position = event.PlaceOf(&events[0])
	return nil
}

// take removes and returns the first event.
func (s *source) take() *event.Event {
	e := &s.events[0]
	s.events = s.events[1:]
	if len(s.events) > 0 {
		s.position = event.PlaceOf(&s.events[0])
	}
	return e
}

func (r *Reader) sources(ctx context.Context, b *book, after event.Place, atOnce int) ([]*source, error) {
	atOnce = max(rowsAtOnceMin, min(atOnce+rowsAtOnceMin, rowsAtOnce)/len(b.lots))
	from, err := r.seek(ctx, b, after.At)
	if err != nil {
		return nil, err
	}
	all := []*source{{events: discardedAfter(b, after)}, {more: r.decisions(b, after, atOnce)}}
	if len(all[0].events) > 0 {
		all[0].position = event.PlaceOf(&all[0].events[0])
	}
	for i, l := range b.lots {
		if l.unordered > 0 {
			all = append(all, &source{more: r.unordered(b, l, after, atOnce)})
		}
		claims := &lotSource{r: r, b: b, l: l, seq: from[i], before: from[i] - 1, after: after, atOnce: atOnce}
		all = append(all, &source{more: claims.more})
	}
	return all, nil
}

func discardedAfter(b *book, after event.Place) (events []event.Event) {
	for i := range b.discarded {
		if after.Before(event.PlaceOf(&b.discarded[i])) {
			events = append(events, b.discarded[i])
		}
	}
	sortEvents(events)
	return events
}

func sortEvents(events []event.Event) {
	slices.SortStableFunc(events, func(x, y event.Event) int {
		if event.PlaceOf(&x).Before(event.PlaceOf(&y)) {
			return -1
		}
		return 1
	})
}

// decisions reads ledger_events by its primary key.
func (r *Reader) decisions(b *book, after event.Place, atOnce int) func(ctx context.Context) ([]event.Event, error) {
	const query = "SELECT payload FROM ledger_events" +
		" WHERE campaign_id = ? AND at >= ? AND (at > ? OR id > ?) AND at < ? ORDER BY at, id LIMIT ?"
	return func(ctx context.Context) (events []event.Event, err error) {
		at := after.At.UTC().Format(sqlstore.TimeLayout)
		upto := b.upto.UTC().Format(sqlstore.TimeLayout)
		var payloads [][]byte
		err = r.db.WithContext(ctx).Raw(query, b.id, at, at, after.ID, upto, atOnce).Scan(&payloads).Error
		if err != nil {
			return nil, err
		}
		for _, payload := range payloads {
			e, err := event.Decode(payload)
			if err != nil {
				return nil, err
			}
			events = append(events, e)
			after = event.PlaceOf(&e)
		}
		return events, nil
	}
}

// unordered reads the accepted claims of a lot whose seqs do not show
// their order. Each page sorts all of them.
func (r *Reader) unordered(
	b *book, l *lot, after event.Place, atOnce int,
) func(ctx context.Context) ([]event.Event, error) {
	const where = " WHERE campaign_id = ? AND shard = ? AND seq <= ?" +
		" AND claimed_at >= ? AND (claimed_at > ? OR id > ?) ORDER BY claimed_at, id LIMIT ?"
	query := "SELECT " + claimColumns + " FROM (SELECT " + claimColumns + " FROM claims" + where + ") AS c"
	if b.archivable {
		query += " UNION ALL SELECT " + claimColumns + " FROM (SELECT " + claimColumns + " FROM claims_archive" + where + ") AS a"
	}
	query += " ORDER BY claimed_at, id LIMIT ?"
	return func(ctx context.Context) (events []event.Event, err error) {
		at := after.At.UTC().Format(sqlstore.TimeLayout)
		args := []any{l.campaignID, l.shard, l.unordered, at, at, after.ID, atOnce}
		if b.archivable {
			args = append(args, args...)
		}
		var claims []stored.ClaimRow
		err = r.db.WithContext(ctx).Raw(query, append(args, atOnce)...).Scan(&claims).Error
		if err != nil {
			return nil, err
		}
		for i := range claims {
			events = append(events, accepted(b, l, &claims[i]))
			after = event.PlaceOf(&events[i])
		}
		return events, nil
	}
}

// lotSource reads the accepted claims of a lot in seq order, behind the
// unordered ones.
type lotSource struct {
	r      *Reader
	b      *book
	l      *lot
	seq    int64 // the next one
	before int64 // seq of the preceding row
	after  event.Place
	atOnce int

	held  []event.Event // claims of the last time read; more of that time may follow
	last  time.Time     // time of the preceding row
	ended bool
}

const claimColumns = "id, seq, user_id, quantity, key_digest, subjects, epoch, packet_id, amount, claimed_at"

// rowsQuery selects rows of a lot in seq order, from both tables
// as of one moment.
func (r *Reader) rowsQuery(columns string, b *book, l *lot, from int64, most int) (query string, args []any) {
	const where = " WHERE campaign_id = ? AND shard = ? AND seq >= ? ORDER BY seq LIMIT ?"
	query = "SELECT " + columns + " FROM claims" + sqlstore.ByIndex(r.db, "claims_place") + where
	args = []any{l.campaignID, l.shard, from, most}
	if !b.archivable {
		return query, args
	}
	old := "SELECT " + columns + " FROM claims_archive" + where
	query = "SELECT " + columns + " FROM (" + query + ") AS c UNION ALL SELECT " + columns + " FROM (" + old + ") AS a ORDER BY seq LIMIT ?"
	return query, append(append(args, args...), most)
}

// more returns the next claims. All of one time come together, ordered by id.
func (s *lotSource) more(ctx context.Context) (events []event.Event, err error) {
	for len(events) == 0 && !s.ended {
		events = s.held
		s.held = nil
		rows, err := s.read(ctx, &events)
		if err != nil {
			return nil, err
		}
		s.ended = s.ended || rows == 0 // a short page may have been cut off in transit
		sortEvents(events)
		if !s.ended {
			last := events[len(events)-1].At
			i := len(events)
			for i > 0 && events[i-1].At.Equal(last.Time) {
				i--
			}
			s.held = slices.Clone(events[i:])
			events = events[:i]
		}
		events = slices.DeleteFunc(events, func(e event.Event) bool { return !s.after.Before(event.PlaceOf(&e)) })
	}
	return events, nil
}

// read appends rows to events, up to the first that must not be shown yet.
func (s *lotSource) read(ctx context.Context, events *[]event.Event) (rows int, err error) {
	query, args := s.r.rowsQuery(claimColumns, s.b, s.l, s.seq, s.atOnce)
	var claims []stored.ClaimRow
	if err := s.r.db.WithContext(ctx).Raw(query, args...).Scan(&claims).Error; err != nil {
		return 0, err
	}
	for i := range claims {
		e := accepted(s.b, s.l, &claims[i])
		s.ended = s.ended || s.isEnd(&e)
		if !s.ended {
			*events = append(*events, e)
		}
		s.last = e.At.Time
		s.before = e.Seq
		s.seq = e.Seq + 1
	}
	return len(claims), nil
}

func accepted(b *book, l *lot, c *stored.ClaimRow) event.Event {
	e := event.Event{
		V: event.Version, Type: event.ClaimAccepted, ID: c.ID, CampaignID: b.id, Shard: l.shard, Seq: c.Seq,
		UserID: c.UserID, Quantity: c.Quantity, Key: c.KeyDigest, Subjects: c.Subjects, Epoch: c.Epoch, Amount: c.Amount,
		At: models.NewTime(c.ClaimedAt),
	}
	if c.PacketID != nil {
		e.PacketID = *c.PacketID
	}
	if e.Amount != nil {
		e.Currency = b.currency
	}
	return e
}

// isEnd reports whether the ledger ends before a claim: it is
// too recent, or earlier claims may be in transit.
func (s *lotSource) isEnd(e *event.Event) bool {
	if e.Seq != s.before+1 && !e.At.Before(s.l.gapsFrom) {
		end := s.last
		if end.Before(s.l.gapsFrom) {
			end = s.l.gapsFrom
		}
		s.b.end(end)
	}
	return !e.At.Before(s.b.upto)
}

// seek finds, by binary search, each lot's first seq at or after
// a time, behind the unordered ones. One statement probes all lots.
func (r *Reader) seek(ctx context.Context, b *book, at time.Time) ([]int64, error) {
	from := make([]int64, len(b.lots)) // lower bound of the first seq
	upto := make([]int64, len(b.lots)) // upper bound
	for i, l := range b.lots {
		from[i] = l.unordered + 1
		upto[i] = max(l.highest, l.archived) + 1
		if at.IsZero() {
			upto[i] = from[i]
		}
	}
	for {
		found, err := r.probe(ctx, b, from, upto)
		if err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
		if len(found) == 0 {
			return from, nil
		}
		for i, middle := range found {
			if middle.seq == 0 || !middle.at.Before(at) {
				upto[i] = (from[i] + upto[i]) / 2
			} else {
				from[i] = middle.seq + 1
			}
		}
	}
}

// probed is the first row at or after the middle of a range. seq
// 0: the range has none.
type probed struct {
	seq int64
	at  time.Time
}

// probe reads a row from the middle of each non-empty range, by
// index of the lot.
func (r *Reader) probe(ctx context.Context, b *book, from, upto []int64) (map[int]probed, error) {
	found := make(map[int]probed)
	var query string
	var args []any
	for i, l := range b.lots {
		if from[i] >= upto[i] {
			continue
		}
		found[i] = probed{}
		one, its := r.rowsQuery("seq, claimed_at", b, l, (from[i]+upto[i])/2, 1)
		if query != "" {
			query += " UNION ALL "
		}
		// One row per lot, with or without a claim: a missing row was
		// cut off.
		query += fmt.Sprintf("SELECT %d AS lot, seq, claimed_at FROM (SELECT 1) AS o%d LEFT JOIN (%s) AS l%d ON 1 = 1", i, i, one, i)
		args = append(args, its...)
	}
	if len(found) == 0 {
		return found, nil
	}
	var rows []struct {
		Lot       int
		Seq       int64
		ClaimedAt time.Time
	}
	if err := r.db.WithContext(ctx).Raw(query, args...).Scan(&rows).Error; err != nil {
		return nil, err
	}
	if len(rows) != len(found) {
		return nil, fmt.Errorf("%w: lots of %s", sqlstore.ErrShort, b.id)
	}
	for _, row := range rows {
		if row.Seq < upto[row.Lot] {
			found[row.Lot] = probed{row.Seq, row.ClaimedAt}
		}
	}
	return found, nil
}
