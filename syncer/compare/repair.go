package compare

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"dibs/internal/audit"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/campaigns"
	"dibs/syncer/parking"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Values of repairs.what.
const (
	RepairParked = "parked" // a parked claim got its row, or was given up
	RepairLost   = "lost"   // lost claims were given up
	RepairRedis  = "redis"  // the lot was loaded again, which corrects its counters
)

// Repaired is the result of a repair.
type Repaired struct {
	Found   Comparison      `json:"found"`
	Steps   []stored.Repair `json:"steps"` // in order; also in the table repairs
	Left    Comparison      `json:"left"`
	GivenUp []string        `json:"given_up,omitempty"` // ids of claims
}

// Repair retries the parked claims of a campaign, and loads the lots
// that differ. With givesUp it frees the units of lost claims, and of
// parked ones that MySQL still refuses, though these were accepted. It
// may be repeated, and an error does not revert earlier steps. Errors:
// models.ErrNotFound, those of lots.Loader and of the database.
func (c *Comparer) Repair(ctx context.Context, id string, givesUp bool) (done Repaired, err error) {
	done.Steps = []stored.Repair{}
	if givesUp { // else a loss may be on its way to MySQL
		err = c.eachLot(ctx, id, &done, func(r *repair) error { return c.loader.Applied(ctx, r.id) })
		if err != nil {
			return done, err
		}
	}
	done.Found, err = c.Compare(ctx, id)
	done.Left = done.Found
	if err != nil || done.Found.Agrees() && (!givesUp || done.Found.MySQL.LostUnits == 0) {
		return done, err
	}
	err = c.eachLot(ctx, id, &done, func(r *repair) error { return r.run(ctx, givesUp) })
	if err != nil {
		return done, err
	}
	done.Left, err = c.Compare(ctx, id)
	return done, err
}

// eachLot runs do on each lot of a campaign, and then sums its shards.
func (c *Comparer) eachLot(ctx context.Context, id string, done *Repaired, do func(r *repair) error) error {
	campaign, err := campaigns.Read(c.db.WithContext(ctx), id)
	if err != nil {
		return err
	}
	lots := campaign.ShardIDs()
	for _, lot := range lots {
		if err := do(&repair{c: c, id: lot, done: done}); err != nil {
			return fmt.Errorf("compare: repair %s: %w", lot, err)
		}
	}
	if len(lots) > 1 {
		return campaigns.SumShards(ctx, c.db, id)
	}
	return nil
}

type repair struct {
	c    *Comparer
	id   string
	done *Repaired
}

func (r *repair) run(ctx context.Context, givesUp bool) error {
	if err := r.retryParked(ctx, givesUp); err != nil {
		return err
	}
	found, err := r.c.Compare(ctx, r.id)
	if err != nil {
		return err
	}
	if !found.Agrees() || len(r.done.Steps) > 0 {
		err = r.reload(ctx, &found)
	}
	if err != nil || !givesUp {
		return err
	}
	// then MySQL has the losses that the load found
	if err := r.c.loader.Applied(ctx, r.id); err != nil {
		return err
	}
	if isGivenUp, err := r.giveUpLost(ctx); err != nil || !isGivenUp {
		return err
	}
	return r.reload(ctx, &found)
}

func (r *repair) reload(ctx context.Context, found *Comparison) error {
	if err := r.c.loader.Reload(ctx, r.id); err != nil {
		return err
	}
	before := "the same"
	if !found.Agrees() {
		before = found.Differences[0]
	}
	return r.change(ctx, RepairRedis, before, func(*gorm.DB) (string, error) {
		return "loaded again from the rows of claims", nil
	})
}

// giveUpLost frees the units of lost claims. Its event has their seqs
// as far as gaps show them.
func (r *repair) giveUpLost(ctx context.Context) (isGivenUp bool, err error) {
	var lost struct{ LostClaims, LostUnits, SeenSeq int64 }
	err = r.c.db.WithContext(ctx).Raw("SELECT lost_claims, lost_units, seen_seq FROM lots WHERE id = ?", r.id).Scan(&lost).Error
	if err != nil || lost.LostUnits == 0 {
		return false, err
	}
	// then a claim up to SeenSeq that has no row is lost, and not on its way
	if err := r.c.loader.Applied(ctx, r.id); err != nil {
		return false, err
	}
	before := fmt.Sprintf("%d claims of %d units", lost.LostClaims, lost.LostUnits)
	err = r.change(ctx, RepairLost, before, func(tx *gorm.DB) (string, error) {
		seqs, err := missingSeqs(ctx, tx, r.id, lost.SeenSeq)
		if err != nil {
			return "", err
		}
		changed, err := sqlstore.Exec(ctx, tx, "UPDATE lots SET given_up_claims = given_up_claims + lost_claims,"+
			" given_up_units = given_up_units + lost_units, lost_claims = 0, lost_units = 0"+
			" WHERE id = ? AND lost_claims = ? AND lost_units = ?", r.id, lost.LostClaims, lost.LostUnits)
		if err != nil {
			return "", err
		}
		if changed == 0 {
			return "", fmt.Errorf("%w: more was lost in between: try again", models.ErrChanged)
		}
		after := fmt.Sprintf("given up: %d units are for sale again", lost.LostUnits)
		return after, r.publish(ctx, tx, &event.Event{Quantity: lost.LostUnits, Seqs: seqs})
	})
	return err == nil, err
}

// errUnnamed reports that a guess would name claims that MySQL had.
var errUnnamed = errors.New("compare: which claims are lost is not known")

const seqsMax = 10_000 // ranges of one event

// missingSeqs returns ranges of seqs, up to the highest, without a
// row or a parked claim, that were not given up before.
func missingSeqs(ctx context.Context, tx *gorm.DB, id string, highest int64) (missing [][2]int64, err error) {
	known, err := unwrittenSeqs(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	written, err := writtenSeqs(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	known = append(known, written...)
	slices.SortFunc(known, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	next := int64(1)
	for _, k := range append(known, [2]int64{highest + 1, highest + 1}) {
		if k[0] > next && len(missing) < seqsMax {
			missing = append(missing, [2]int64{next, min(k[0]-1, highest)})
		}
		next = max(next, k[1]+1)
	}
	return missing, nil
}

// unwrittenSeqs are those of parked claims, and of claims given up before.
func unwrittenSeqs(ctx context.Context, tx *gorm.DB, id string) (known [][2]int64, err error) {
	campaignID, shard := models.SplitShardID(id)
	parked, err := parking.Read(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	for _, p := range parked.BySeq() {
		known = append(known, [2]int64{p.Event.Seq, p.Event.Seq})
	}
	var payloads [][]byte
	err = tx.Raw("SELECT payload FROM ledger_events WHERE campaign_id = ? AND type = ?", campaignID, event.ClaimsGivenUp).
		Scan(&payloads).Error
	if err != nil {
		return nil, err
	}
	for _, payload := range payloads {
		e, err := event.Decode(payload)
		if err != nil {
			return nil, err
		}
		if e.Shard == shard {
			known = append(known, e.Seqs...)
		}
	}
	return known, nil
}

// writtenSeqs are those of rows. Errors: errUnnamed if some are elsewhere.
func writtenSeqs(ctx context.Context, tx *gorm.DB, id string) (known [][2]int64, err error) {
	campaignID, shard := models.SplitShardID(id)
	var archived, inArchive int64 // the archive may have been moved
	err = tx.Raw("SELECT archived_claims, (SELECT COUNT(*) FROM claims_archive WHERE campaign_id = ? AND shard = ?)"+
		" FROM lots WHERE id = ?", campaignID, shard, id).Row().Scan(&archived, &inArchive)
	if err == nil && inArchive < archived {
		err = sqlstore.Final(fmt.Errorf("%w: claims_archive has %d of %d claims", errUnnamed, inArchive, archived))
	}
	if err != nil {
		return nil, err
	}
	for _, table := range []string{"claims", "claims_archive"} {
		query := "SELECT seq FROM " + table + " WHERE campaign_id = ? AND shard = ? ORDER BY seq"
		err := sqlstore.ScanAll(ctx, tx, query, []any{campaignID, shard},
			func(scan func(...any) error) error {
				var seq int64
				err := scan(&seq)
				if n := len(known); n > 0 && known[n-1][1]+1 == seq {
					known[n-1][1] = seq
					return err
				}
				known = append(known, [2]int64{seq, seq})
				return err
			})
		if err != nil {
			return nil, err
		}
	}
	return known, nil
}

// publish adds claims.given_up to the outbox,
// so a restored MySQL gets it from the stream.
func (r *repair) publish(ctx context.Context, tx *gorm.DB, e *event.Event) error {
	e.Type = event.ClaimsGivenUp
	e.CampaignID, e.Shard = models.SplitShardID(r.id)
	e.GivenUp = &event.GivenUp{}
	err := tx.Raw("SELECT given_up_claims, given_up_units FROM lots WHERE id = ?", r.id).Row().
		Scan(&e.GivenUp.Claims, &e.GivenUp.Units)
	if err != nil {
		return err
	}
	row, err := campaigns.NewOutboxRow(stored.OutboxEvent, e)
	if err != nil {
		return err
	}
	return campaigns.PutOutbox(ctx, tx, []stored.OutboxRow{row})
}

// change does and records one step in a transaction that locks the
// lot's row. do returns the value after it, or "" if there was nothing to do.
func (r *repair) change(ctx context.Context, what, before string, do func(tx *gorm.DB) (after string, err error)) error {
	var step stored.Repair
	err := sqlstore.InTx(ctx, r.c.db, func(tx *gorm.DB) error {
		step = stored.Repair{} // of an attempt before
		// Lock before the first read: the snapshot then has all
		// flushes except those that wait for it.
		if _, err := sqlstore.Exec(ctx, tx, "UPDATE lots SET total = total WHERE id = ?", r.id); err != nil {
			return err
		}
		after, err := do(tx)
		if err != nil || after == "" {
			return err
		}
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		step = stored.Repair{
			ID: id.String(), LotID: r.id, What: what, ValueBefore: sqlstore.Cut(before, models.ReasonLength),
			ValueAfter: sqlstore.Cut(after, models.ReasonLength), At: sqlstore.Now(),
		}
		if err := tx.Create(&step).Error; err != nil {
			return err
		}
		return audit.Put(ctx, tx, models.AuditBooksRepaired, r.id,
			map[string]string{what: step.ValueBefore}, map[string]string{what: step.ValueAfter})
	})
	if err != nil || step.ID == "" {
		return err
	}
	r.c.log.LogAttrs(ctx, slog.LevelWarn, "books repaired", slog.String("campaign_id", r.id), slog.String("what", what),
		slog.String("before", step.ValueBefore), slog.String("after", step.ValueAfter))
	r.done.Steps = append(r.done.Steps, step)
	return nil
}
