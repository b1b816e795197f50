package apply

import (
	"fmt"
	"maps"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"

	"gorm.io/gorm/clause"
)

const insertClaimsHead = "INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, key_digest, subjects, epoch," +
	" packet_id, amount, claimed_at, synced_at) VALUES "

func (a *application) insert(rows []*event.Raw) error {
	for len(rows) > 0 {
		n := min(len(rows), int(a.insertRows.Load()))
		if err := a.insertSome(rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insertSome inserts rows by one statement. A refused statement leaves
// no row and the transaction intact. Then known rows are dropped, and
// bisection finds bad ones.
func (a *application) insertSome(rows []*event.Raw) error {
	if len(rows) == 0 {
		return nil
	}
	err := a.execInsert(rows)
	switch failure := sqlstore.FailureOf(err); {
	case err == nil:
		a.written = append(a.written, rows...)
		return nil
	case sqlstore.IsPacketTooLarge(err) && len(rows) > 1: // the server has closed the connection
		half := int64(len(rows)+1) / 2
		a.insertRows.Store(half)
		return fmt.Errorf("trying with %d rows a statement: %s", half, err) //nolint:errorlint // transient
	case failure != sqlstore.FailureDuplicate && failure != sqlstore.FailureData:
		return err
	case failure == sqlstore.FailureDuplicate:
		left, knownErr := a.dropKnown(rows)
		if knownErr != nil {
			return knownErr
		}
		if len(left) < len(rows) {
			return a.insertSome(left)
		}
	}
	if len(rows) == 1 {
		a.park(rows[0], parkedData, err.Error())
		return nil
	}
	half := len(rows) / 2
	if err := a.insertSome(rows[:half]); err != nil {
		return err
	}
	return a.insertSome(rows[half:])
}

func (a *application) execInsert(rows []*event.Raw) error {
	s := sqlstore.NewStatement(insertClaimsHead, len(rows)*sqlstore.RowBytes)
	synced := a.started.UTC().Format(sqlstore.TimeLayout)
	for i, r := range rows {
		addClaim(s, i, &r.Event, synced)
	}
	_, err := sqlstore.Exec(a.ctx, a.tx, s.SQL(), s.Args...)
	return err
}

func addClaim(s *sqlstore.Statement, i int, e *event.Event, synced string) {
	s.BeginRow(i)
	s.Text(e.ID)
	s.Text(e.CampaignID)
	s.Int(int64(e.Shard))
	s.Int(e.Seq)
	s.Text(e.UserID)
	s.Int(e.Quantity)
	s.Text(string(models.ClaimClaimed))
	s.Text(e.Key)
	s.TextOrNull(e.Subjects.JSON())
	s.Int(e.Epoch)
	s.TextOrNull(e.PacketID)
	s.IntOrNull(e.Amount)
	s.Time(e.At.Time)
	s.Quoted(synced)
	s.EndRow()
}

// dropKnown drops duplicates, and parks
// claims whose id belongs to another claim.
func (a *application) dropKnown(rows []*event.Raw) (left []*event.Raw, err error) {
	var known []stored.ClaimRow
	err = a.tx.Select(stored.ClaimIdentity).Where("id IN ?", idsOf(rows)).
		Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Find(&known).Error
	if err != nil {
		return nil, err
	}
	there := make(map[string]stored.ClaimRow)
	for i := range known {
		there[known[i].ID] = known[i]
	}
	for _, r := range rows {
		k, exists := there[r.ID]
		switch {
		case !exists:
			left = append(left, r)
			there[r.ID] = stored.ClaimRow{
				ID: r.ID, CampaignID: r.CampaignID, Shard: r.Shard, Seq: r.Seq, UserID: r.UserID, Quantity: r.Quantity,
			}
		case k.IsOf(&r.Event):
			a.Known++
		default:
			a.park(r, parkedID, fmt.Sprintf("a different claim has this id: seq %d of %s", k.Seq, k.CampaignID))
		}
	}
	return left, nil
}

func (a *application) remove(ids map[string]bool) error {
	err := a.tx.Where("id IN ?", slices.Collect(maps.Keys(ids))).Delete(&stored.ClaimRow{}).Error
	a.written = slices.DeleteFunc(a.written, func(r *event.Raw) bool { return ids[r.ID] })
	return err
}
