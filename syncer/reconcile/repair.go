package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"

	"dibs/internal/audit"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"

	"github.com/google/uuid"
)

// What a repair puts right, as it stands in repairs.what.
const (
	RepairClaims    = "claims"    // a row that was missing came back from its event
	RepairParked    = "parked"    // a parked claim got its row, or was given up
	RepairPackets   = "packets"   // packets got their owners back from the rows of claims
	RepairCampaigns = "campaigns" // counters in MySQL were made anew from the rows
	RepairRedis     = "redis"     // Redis was rebuilt from the rows
)

// Repaired is what a repair found, what it changed, and what it left.
type Repaired struct {
	Found Comparison      `json:"found"`
	Steps []models.Repair `json:"steps"` // in order; each is in the table repairs, too
	Left  Comparison      `json:"left"`
}

// RepairHow says how far a repair may go.
type RepairHow struct {
	// DiscardParked gives up the claims that are parked and still can't be written: their units are free again, though somebody
	// was told that they are theirs.
	DiscardParked bool
}

// Repair puts the books of a campaign right in the direction of the evidence, which is the rows of claims, the events that
// are in the claim stream still, and those that are parked:
//
//  1. a parked claim is written, if that works by now;
//  2. a row that is missing, and whose event is acknowledged and there, comes back;
//  3. packets that claims have, but that are nobody's by their own rows, get their owners;
//  4. counters in MySQL are made anew from the rows;
//  5. Redis, if it differs then, is rebuilt from the rows and the claims that are parked still, under a new epoch: no claims are
//     taken for that long. Where a parked claim can't be part of that because another has its id or its place, it fails with
//     ErrParked instead;
//  6. lists of packets that earlier loads left behind are taken away.
//
// Each step is safe to repeat and leaves books that the next may start from. What agrees is not touched. An error does not
// undo the steps before it, which are returned beside it. Errors: models.ErrNotFound, ErrParked, ErrUnsynced (the campaign takes no
// claims and is rebuilt as soon as the consumers have caught up), those of lua.Scripts and of the database.
func (r *Reconciler) Repair(ctx context.Context, campaignID string, how RepairHow) (Repaired, error) {
	found, err := r.Compare(ctx, campaignID, DepthUsers)
	done := Repaired{Found: found, Left: found, Steps: []models.Repair{}}
	if err != nil || found.Agrees() && !found.parked {
		return done, err
	}
	keep := func(steps ...models.Repair) {
		for i := range steps {
			r.log.LogAttrs(ctx, slog.LevelWarn, "books repaired", slog.String("campaign_id", campaignID),
				slog.String("what", steps[i].What), slog.String("before", steps[i].ValueBefore), slog.String("after", steps[i].ValueAfter))
		}
		done.Steps = append(done.Steps, steps...)
	}
	written, err := r.retryParked(ctx, campaignID, how)
	keep(written...)
	if err != nil {
		return done, err
	}
	back, err := r.bringRowsBack(ctx, campaignID)
	keep(back...)
	if err != nil {
		return done, err
	}
	owners, err := r.bringOwnersBack(ctx, campaignID)
	keep(owners...)
	if err != nil {
		return done, err
	}
	counted, err := r.recount(ctx, &found)
	keep(counted...)
	if err != nil {
		return done, err
	}
	if done.Left, err = r.Compare(ctx, campaignID, DepthUsers); err != nil {
		return done, err
	}
	steps, err := r.repairRedis(ctx, &done.Left)
	keep(steps...)
	return done, err
}

// repairRedis has Redis hold what the rows say, and nothing else; left is what is left then.
func (r *Reconciler) repairRedis(ctx context.Context, left *Comparison) (steps []models.Repair, err error) {
	id := left.CampaignID
	if left.inRedis {
		if err := r.noneInTheWay(ctx, id); err != nil {
			return nil, err
		}
		if steps, err = r.rebuild(ctx, left); err != nil {
			return steps, err
		}
		if *left, err = r.Compare(ctx, id, DepthUsers); err != nil {
			return steps, err
		}
	}
	if len(left.forgotten) > 0 {
		dropped, err := r.dropForgotten(ctx, id, left.forgotten)
		steps = append(steps, dropped...)
		if err != nil {
			return steps, err
		}
		if *left, err = r.Compare(ctx, id, DepthUsers); err != nil {
			return steps, err
		}
	}
	return steps, nil
}

// recount makes the counters of a campaign anew from its rows, with flushes held off for that long: their claims are either
// among the rows that are counted, or move the counters afterwards.
func (r *Reconciler) recount(ctx context.Context, found *Comparison) (steps []models.Repair, err error) {
	err = r.locked(ctx, found.CampaignID, func(tx *sql.Tx, was *models.Campaign) error {
		steps = nil
		rows, err := countRows(ctx, tx, was.ID)
		if err != nil {
			return err
		}
		parked, err := writer.ReadParked(ctx, tx, was.ID)
		if err != nil {
			return err
		}
		last := rows.Last
		if found.Redis != nil {
			last = max(last, found.Redis.Seq)
		}
		is := *was
		is.Claimed, is.ReleasedClaims = rows.Units, rows.Released
		is.LostClaims = max(0, min(was.LostClaims, last-rows.Claims-parked.Claims)) // one that was given up came after all
		is.SyncedSeq = rows.Claims + is.LostClaims
		is.Remaining = max(0, is.Total-is.Claimed)
		if campaigns.IsResident(was) && was.AppliedVersion != was.Version {
			is.Remaining = max(is.Remaining, was.Remaining) // Redis may work by the older total
		}
		before, after := counters(was), counters(&is)
		if before == after {
			return nil
		}
		if _, err := tx.ExecContext(ctx, "UPDATE campaigns SET"+
			" claimed = ?, synced_seq = ?, lost_claims = ?, remaining = ?, released_claims = ? WHERE id = ?",
			is.Claimed, is.SyncedSeq, is.LostClaims, is.Remaining, is.ReleasedClaims, is.ID); err != nil {
			return fmt.Errorf("reconcile: repair %s: %w", is.ID, err)
		}
		step, err := repairOf(is.ID, RepairCampaigns, before, after+fmt.Sprintf(", by %d rows of claims", rows.Claims))
		if err == nil {
			steps, err = []models.Repair{step}, writeRepair(ctx, tx, &step)
		}
		return err
	})
	return steps, err
}

func counters(c *models.Campaign) string {
	return fmt.Sprintf("claimed %d, remaining %d, synced_seq %d, lost_claims %d, released_claims %d",
		c.Claimed, c.Remaining, c.SyncedSeq, c.LostClaims, c.ReleasedClaims)
}

// locked runs change in a transaction that holds the row of the campaign, and so any flush of it. It is run again when it
// lost against another transaction.
func (r *Reconciler) locked(ctx context.Context, id string, change func(tx *sql.Tx, c *models.Campaign) error) error {
	return sqlstore.Retry(ctx, func() error {
		return sqlstore.InTx(ctx, r.db, func(tx *sql.Tx) error {
			// Before the first read, which makes the snapshot: it then holds every flush that is not waiting for this lock.
			if _, err := tx.ExecContext(ctx, "UPDATE campaigns SET id = id WHERE id = ?", id); err != nil {
				return err
			}
			var c models.Campaign
			if err := readBooks(ctx, tx, id, &c); err != nil {
				return err
			}
			return change(tx, &c)
		})
	})
}

// rebuild has Redis hold what the rows say. How far Redis was is noted first, if its own records bear it out: places that
// have no row then count as lost, and are not given to others.
func (r *Reconciler) rebuild(ctx context.Context, found *Comparison) ([]models.Repair, error) {
	if err := r.noteSeen(ctx, found); err != nil {
		return nil, err
	}
	report, err := r.hydrator.Rebuild(ctx, found.CampaignID, true)
	if err != nil {
		return nil, err
	}
	before := "not there"
	if f := found.Redis; f != nil {
		before = fmt.Sprintf("epoch %d, %d claims, %d units taken", f.Epoch, f.Seq, f.Taken)
	}
	after := fmt.Sprintf("epoch %d, %d claims, %d units taken, %d claims known to be lost",
		report.Epoch, report.Claims, report.Units, report.LostClaims)
	step, err := repairOf(found.CampaignID, RepairRedis, before, after)
	if err != nil {
		return nil, err
	}
	return []models.Repair{step}, r.recordRepair(ctx, &step)
}

func (r *Reconciler) noteSeen(ctx context.Context, found *Comparison) error {
	f := found.Redis
	if f == nil || f.Epoch != found.MySQL.Epoch {
		return nil
	}
	n, err := r.scripts.CountClaimRecords(ctx, found.CampaignID)
	if err != nil {
		return fmt.Errorf("reconcile: repair %s: %w", found.CampaignID, err)
	}
	if n+found.MySQL.LostClaims != f.Seq {
		return nil
	}
	err = r.db.WithContext(ctx).Exec("UPDATE campaigns SET seen_seq = ? WHERE id = ? AND epoch = ? AND seen_seq < ?",
		f.Seq, found.CampaignID, f.Epoch, f.Seq).Error
	if err != nil {
		return fmt.Errorf("reconcile: repair %s: %w", found.CampaignID, err)
	}
	return nil
}

func (r *Reconciler) keysOf(id string) lua.CampaignKeys {
	return lua.KeysOf(id, lua.PartitionOf(id, r.scripts.Partitions()))
}

func repairOf(campaignID, what, before, after string) (models.Repair, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return models.Repair{}, fmt.Errorf("reconcile: repair: %w", err)
	}
	return models.Repair{
		ID: id.String(), CampaignID: campaignID, What: what,
		ValueBefore: sqlstore.Cut(before, models.ReasonLength), ValueAfter: sqlstore.Cut(after, models.ReasonLength), At: sqlstore.Now(),
	}, nil
}

func writeRepair(ctx context.Context, tx *sql.Tx, p *models.Repair) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO repairs (id, campaign_id, what, value_before, value_after, at) VALUES (?, ?, ?, ?, ?, ?)",
		p.ID, p.CampaignID, p.What, p.ValueBefore, p.ValueAfter, p.At.Format(sqlstore.TimeLayout))
	if err != nil {
		return fmt.Errorf("reconcile: repair %s: %w", p.CampaignID, err)
	}
	return audit.Put(ctx, tx, models.AuditBooksRepaired, p.CampaignID,
		map[string]string{p.What: p.ValueBefore}, map[string]string{p.What: p.ValueAfter})
}

// recordRepair is writeRepair for what was repaired in Redis.
func (r *Reconciler) recordRepair(ctx context.Context, p *models.Repair) error {
	return sqlstore.InTx(ctx, r.db, func(tx *sql.Tx) error { return writeRepair(ctx, tx, p) })
}
