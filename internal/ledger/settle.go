package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/calendar"
	"dibs/models/event"
)

const (
	settleAtOnce = 200 // campaigns per statement
	maxMissing   = 100 // limit of missing campaigns listed in a settlement
	// largest assumed clock difference between Redis and the other machines.
	changedMargin = 1 * time.Hour
)

// Settle sums the events of one day. Errors: the database's own.
func (r *Reader) Settle(ctx context.Context, day calendar.Day) (event.Settlement, error) {
	s := event.Settlement{
		Date: day.Date, TimeZone: day.Zone.String(), From: models.NewTime(day.From), To: models.NewTime(day.To),
		Missing: []event.SettlementMissing{}, Sums: []event.SettlementSum{},
	}
	if sqlstore.Now().Before(day.To) {
		s.Missing = append(s.Missing, event.SettlementMissing{Reason: "the day is not over"})
	}
	const created = " FROM definitions WHERE created_at < ?"
	before := day.To.UTC().Add(changedMargin).Format(sqlstore.TimeLayout)
	all := 0
	if err := r.db.WithContext(ctx).Raw("SELECT COUNT(*)"+created, before).Row().Scan(&all); err != nil {
		return s, fmt.Errorf("ledger: settle: %w", err)
	}
	fetch := func(after string) (ids []string, err error) {
		err = r.db.WithContext(ctx).Raw("SELECT campaign_id"+created+" AND campaign_id > ? ORDER BY campaign_id "+
			"LIMIT ?", before, after, settleAtOnce).Scan(&ids).Error
		return ids, err
	}
	for ids, err := range sqlstore.Pages(sqlstore.Itself, fetch) {
		if err == nil {
			err = r.settle(ctx, &s, ids)
		}
		if err != nil {
			return s, fmt.Errorf("ledger: settle: %w", err)
		}
		all -= len(ids)
	}
	if all > 0 {
		return s, fmt.Errorf("ledger: settle: %w: %d campaigns", sqlstore.ErrShort, all)
	}
	if err := r.ended(ctx, &s); err != nil {
		return s, fmt.Errorf("ledger: settle: %w", err)
	}
	s.Final = len(s.Missing) == 0
	s.Missing = s.Missing[:min(len(s.Missing), maxMissing)]
	return s, nil
}

// ended adds what closed campaigns returned, in their own currency: a
// deleted campaign has no definition, or that of a later one.
func (r *Reader) ended(ctx context.Context, s *event.Settlement) error {
	const query = "SELECT l.payload, COUNT(*) OVER () AS all_rows FROM (SELECT DISTINCT campaign_id FROM ledger_events) k" +
		" JOIN ledger_events l ON l.campaign_id = k.campaign_id AND l.at >= ? AND l.at < ? AND l.type = ?"
	var rows []struct {
		Payload []byte
		AllRows int
	}
	err := r.db.WithContext(ctx).Raw(query, s.From.UTC().Format(sqlstore.TimeLayout), s.To.UTC().Format(sqlstore.TimeLayout),
		event.CampaignClosed).Scan(&rows).Error
	if err != nil {
		return err
	}
	if len(rows) > 0 && len(rows) != rows[0].AllRows {
		return fmt.Errorf("%w: closed campaigns", sqlstore.ErrShort)
	}
	sums := make(map[event.SettlementSum]int64) // by campaign and currency
	for _, row := range rows {
		e, err := event.Decode(row.Payload)
		if err != nil {
			return err
		}
		amount := int64(0)
		if e.Amount != nil {
			amount = *e.Amount
		}
		sums[event.SettlementSum{CampaignID: e.CampaignID, Currency: e.Currency, Type: e.Type}] += amount
	}
	for sum, amount := range sums {
		sum.Amount = amount
		s.Sums = append(s.Sums, sum)
	}
	slices.SortFunc(s.Sums, compareSums)
	return nil
}

func compareSums(x, y event.SettlementSum) int {
	return cmp.Or(cmp.Compare(x.CampaignID, y.CampaignID), cmp.Compare(x.Type, y.Type), cmp.Compare(x.Currency, y.Currency))
}

// settle adds the sums of some campaigns.
func (r *Reader) settle(ctx context.Context, s *event.Settlement, ids []string) error {
	found, err := r.books(ctx, ids)
	if err != nil {
		return err
	}
	sums := make(map[event.SettlementSum]*event.SettlementSum) // by campaign and type
	add := func(b *book, kind event.Type, claims, units, amount int64) {
		key := event.SettlementSum{CampaignID: b.id, Type: kind}
		if sums[key] == nil {
			sums[key] = &event.SettlementSum{CampaignID: b.id, Type: kind, Currency: b.currency}
		}
		sums[key].Claims += claims
		sums[key].Units += units
		sums[key].Amount += amount
	}
	for _, id := range ids {
		b := found[id]
		if b == nil {
			return fmt.Errorf("%w: campaign %s", sqlstore.ErrShort, id)
		}
		if why := b.missing(s.To.Time); why != "" {
			s.Missing = append(s.Missing, event.SettlementMissing{CampaignID: id, Reason: why})
		}
		if b.changed.Before(s.From.Add(-changedMargin)) {
			continue // no claim was stored since
		}
		if err := r.accepted(ctx, b, s, add); err != nil {
			return err
		}
	}
	if err := r.decided(ctx, found, s, add); err != nil {
		return err
	}
	for _, sum := range sums {
		if sum.Claims > 0 || sum.Units > 0 || sum.Amount > 0 {
			s.Sums = append(s.Sums, *sum)
		}
	}
	return nil
}

// missing says why a campaign may get more events before a time;
// "" means that it can't.
func (b *book) missing(to time.Time) string {
	switch {
	case !b.booked.Before(to):
		return ""
	case b.parked:
		return "parked claims wait for a decision: see dibs reconcile"
	case b.booked.IsZero():
		return "claims may be on their way"
	}
	return "booked up to " + b.booked.Format(models.TimeLayout)
}

// accepted sums a campaign's accepted claims: a range of seq in each lot.
func (r *Reader) accepted(
	ctx context.Context, b *book, s *event.Settlement, add func(b *book, kind event.Type, claims, units, amount int64),
) error {
	first, err := r.seek(ctx, b, s.From.Time)
	if err != nil {
		return err
	}
	end, err := r.seek(ctx, b, s.To.Time)
	if err != nil {
		return err
	}
	for i, l := range b.lots {
		if l.unordered > 0 {
			err = r.addClaims(ctx, b, add, "seq <= ? AND claimed_at >= ? AND claimed_at < ?", b.id, l.shard, l.unordered,
				s.From.UTC().Format(sqlstore.TimeLayout), s.To.UTC().Format(sqlstore.TimeLayout))
		}
		if err == nil && first[i] < end[i] {
			err = r.addClaims(ctx, b, add, "seq >= ? AND seq < ?", b.id, l.shard, first[i], end[i])
		}
		if err != nil {
			return err
		}
	}
	for i := range b.discarded {
		e := &b.discarded[i]
		if e.At.Before(s.From.Time) || !e.At.Before(s.To.Time) {
			continue
		}
		amount := int64(0)
		if e.Amount != nil {
			amount = *e.Amount
		}
		add(b, event.ClaimAccepted, 1, e.Quantity, amount)
	}
	return nil
}

// addClaims adds the rows of a lot that meet a condition.
func (r *Reader) addClaims(
	ctx context.Context, b *book, add func(b *book, kind event.Type, claims, units, amount int64), where string, of ...any,
) error {
	const sums = "SELECT COUNT(*) AS n, COALESCE(SUM(quantity), 0) AS units, COALESCE(SUM(amount), 0) AS amount FROM "
	where = " WHERE campaign_id = ? AND shard = ? AND " + where
	var claims, units, amount int64
	err := r.db.WithContext(ctx).Raw("SELECT SUM(n), SUM(units), SUM(amount) FROM ("+
		sums+"claims"+sqlstore.ByIndex(r.db, "claims_place")+where+" UNION ALL "+sums+"claims_archive"+where+") AS both_tables",
		append(slices.Clone(of), of...)...).Row().Scan(&claims, &units, &amount)
	if err == nil {
		add(b, event.ClaimAccepted, claims, units, amount)
	}
	return err
}

// decided sums the decisions about claims of some campaigns. Extending a
// hold moves no unit. The end of a campaign is no decision about claims.
func (r *Reader) decided(
	ctx context.Context, found map[string]*book, s *event.Settlement, add func(b *book, kind event.Type, claims, units, amount int64),
) error {
	if len(found) == 0 {
		return nil
	}
	const query = "SELECT campaign_id, type, SUM(claims) AS claims, SUM(units) AS units, SUM(amount) AS amount," +
		" COUNT(*) OVER () AS all_rows" +
		" FROM ledger_events WHERE campaign_id IN ? AND at >= ? AND at < ? AND type NOT IN ? GROUP BY campaign_id, type"
	var sums []struct {
		event.SettlementSum `gorm:"embedded"`

		AllRows int
	}
	err := r.db.WithContext(ctx).Raw(query, slices.Collect(maps.Keys(found)), s.From.UTC().Format(sqlstore.TimeLayout),
		s.To.UTC().Format(sqlstore.TimeLayout),
		[]event.Type{event.ClaimExtended, event.CampaignClosed}).Scan(&sums).Error
	if err != nil {
		return err
	}
	if len(sums) > 0 && len(sums) != sums[0].AllRows {
		return fmt.Errorf("%w: sums of decisions", sqlstore.ErrShort)
	}
	for _, sum := range sums {
		add(found[sum.CampaignID], sum.Type, sum.Claims, sum.Units, sum.Amount)
	}
	return nil
}
