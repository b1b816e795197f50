package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"dibs/internal/audit"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"
	"dibs/syncer/residency"

	"github.com/google/uuid"
)

// What a repair puts right, as it stands in repairs.what.
const (
	RepairClaims    = "claims"    // rows that were missing came back, from events or from what Redis recorded; or a release did
	RepairPlaces    = "places"    // a claim whose seq another has got a new one
	RepairParked    = "parked"    // a parked claim got its row, or was given up
	RepairPackets   = "packets"   // packets got their owners back from the rows of claims
	RepairCampaigns = "campaigns" // counters in MySQL were recreated from the rows
	RepairRedis     = "redis"     // Redis was rebuilt from the rows
)

// Repaired is what a repair found, what it changed, and what it left.
type Repaired struct {
	Found   Comparison      `json:"found"`
	Steps   []models.Repair `json:"steps"` // in order; each is in the table repairs, too
	Left    Comparison      `json:"left"`
	GivenUp []string        `json:"given_up,omitempty"` // ids of claims
}

// RepairHow says how far a repair may go.
type RepairHow struct {
	// GiveUpClaims gives up claims that were answered and that no evidence restores: their units are free again, though
	// someone was told that they are theirs. The claim stream is told.
	GiveUpClaims bool
}

// Repair corrects what MySQL and Redis hold of a campaign by the evidence: the rows of claims, the events that are still in the claim
// stream, those that are parked, and the records of claims in Redis. It follows the table of lots in docs/recovery.md by the policy of an
// operator. At the end it removes lists of packets that earlier loads left behind.
//
// A claim that was answered is given up only if how says so. Else Left names what is missing, and Redis is not loaded where that would
// free its units. Each step is safe to repeat and leaves a state that the next may start from. What agrees is not touched. An error does
// not undo the steps before it, which are returned beside it. Errors: models.ErrNotFound, writer.ErrParked, those of
// residency.Hydrator.Repair and of the database.
func (r *Reconciler) Repair(ctx context.Context, campaignID string, how RepairHow) (Repaired, error) {
	if c, err := campaigns.Read(r.db.WithContext(ctx), campaignID); err == nil && c.IsSharded() {
		return r.repairShards(ctx, &c, how)
	}
	p := &repair{r: r, id: campaignID, how: how}
	isRepaired, err := p.run(ctx)
	if ofCampaign, shard := models.SplitShardID(campaignID); isRepaired && shard > 0 {
		err = campaigns.SumShards(ctx, r.db, ofCampaign)
	}
	return p.done, err
}

// repair is one call of Repair. It implements residency.Repairer.
type repair struct {
	r    *Reconciler
	id   string
	how  RepairHow
	done Repaired

	lot     recovery.Lot      // the last observation, with what was collected
	before  string            // what Redis held
	loss    residency.Loss    // of the claim stream, since the campaign was loaded
	unknown []string          // ids of claims that Redis has a record of, but not of whose they are
	noSeq   map[string]string // displaced claims that can't have a new seq, by their id among those that are parked, and why
	refused map[string]bool   // displaced claims, by the same id, that the database refuses with any seq

	started, counts                      bool // an observation was made; the next ones count rows
	triedParked, readStream, readRecords bool
	compared, differs                    bool // Redis was compared in detail; it differs
	accepted                             bool // claims that nothing recorded are given up
}

// run compares the lot, and repairs it if that differs or its load must be an operator's.
func (p *repair) run(ctx context.Context) (repaired bool, err error) {
	p.done, err = p.r.compareFirst(ctx, p.id, []string{p.id}, p.how)
	if found := &p.done.Found; err != nil || found.Agrees() && !found.parked {
		return false, err
	}
	if err := p.follow(ctx); err != nil {
		return false, fmt.Errorf("reconcile: repair %s: %w", p.id, err)
	}
	return true, nil
}

// follow has the lot follow its table, and compares what is left.
func (p *repair) follow(ctx context.Context) error {
	policy := recovery.Repair
	if p.how.GiveUpClaims {
		policy = recovery.GiveUp
	}
	loaded, err := p.r.hydrator.Repair(ctx, p.id, policy, p)
	if loaded != nil {
		after := fmt.Sprintf("epoch %d, %d claims, %d units taken, %d claims known to be lost",
			loaded.Epoch, loaded.Claims, loaded.Units, loaded.LostClaims)
		if p.loss.Reason != "" {
			after += "; " + p.loss.Reason
		}
		err = errors.Join(err, p.record(ctx, RepairRedis, p.before, after))
	}
	if err == nil {
		err = p.compare(ctx)
	}
	if err == nil && p.lot.Evidence.Unwritable > 0 {
		err = p.refuseParked(ctx)
	}
	if err != nil {
		return err
	}
	return p.dropForgotten(ctx)
}

// Do implements residency.Repairer.
func (p *repair) Do(ctx context.Context, action recovery.Action) error {
	switch action { //nolint:exhaustive // the others are no operator's
	case recovery.CountRows:
		p.counts = true
		return p.restoreOwners(ctx)
	case recovery.RestoreParked:
		p.triedParked = true
		return p.retryParked(ctx)
	case recovery.RestoreStream:
		p.readStream = true
		return errors.Join(p.restoreFromStream(ctx), p.restoreOwners(ctx))
	case recovery.RestoreRecords:
		p.readRecords = true
		return errors.Join(p.restoreFromRedis(ctx), p.restoreOwners(ctx))
	case recovery.RenumberDisplaced:
		return p.renumber(ctx)
	case recovery.CorrectCounters, recovery.GiveUpClaims:
		return p.recount(ctx, action == recovery.GiveUpClaims)
	case recovery.GiveUpUnrecorded:
		p.accepted = true
		return nil
	case recovery.GiveUpParked:
		return p.giveUpParked(ctx)
	}
	return fmt.Errorf("reconcile: no step of a repair: %s", action)
}

// compare compares what is left, with what only the repair knows of.
func (p *repair) compare(ctx context.Context) (err error) {
	p.done.Left, err = p.r.Compare(ctx, p.id, DepthUsers)
	if err != nil || p.done.Left.Agrees() {
		return err
	}
	if len(p.unknown) > 0 {
		p.done.Left.differf("redis has records of claims without a row, and does not tell whose they are: %s", joined(p.unknown))
	}
	for _, id := range slices.Sorted(maps.Keys(p.noSeq)) {
		p.done.Left.differf("claim %s lost its seq and can have no other: %s", id, p.noSeq[id])
	}
	missing, err := p.missing(ctx)
	if len(missing) > 0 {
		p.done.Left.differf("claims that were answered have no row, and nothing is left of them: %s;"+
			" `dibs reconcile --repair --give-up-claims` gives them up, and their units are free again", namesOf(missing))
	}
	return err
}

// dropForgotten takes lists of packets of earlier loads out of Redis. Their names hold the numbers of those loads, so no one writes
// them any more.
func (p *repair) dropForgotten(ctx context.Context) error {
	lists := p.done.Left.forgotten
	if len(lists) == 0 {
		return nil
	}
	if err := p.r.scripts.DropPacketLists(ctx, lists); err != nil {
		return err
	}
	if err := p.record(ctx, RepairRedis, "lists of packets of earlier loads: "+joined(lists), "none"); err != nil {
		return err
	}
	return p.compare(ctx)
}

// record writes down a step that changed nothing in MySQL.
func (p *repair) record(ctx context.Context, what, before, after string) error {
	return p.change(ctx, func(*sqlstore.Tx, *models.Campaign) (*models.Repair, error) {
		return repairOf(p.id, what, before, after)
	})
}

// change makes one step in a transaction that holds the row of the campaign. change returns nil when there is nothing to do.
func (p *repair) change(ctx context.Context, change func(tx *sqlstore.Tx, c *models.Campaign) (*models.Repair, error)) error {
	var step *models.Repair
	err := p.r.locked(ctx, p.id, func(tx *sqlstore.Tx, c *models.Campaign) (err error) {
		step, err = change(tx, c)
		if err != nil || step == nil {
			return err
		}
		return writeRepair(ctx, tx, step)
	})
	if err != nil || step == nil {
		return err
	}
	p.r.log.LogAttrs(ctx, slog.LevelWarn, "books repaired", slog.String("campaign_id", p.id),
		slog.String("what", step.What), slog.String("before", step.ValueBefore), slog.String("after", step.ValueAfter))
	p.done.Steps = append(p.done.Steps, *step)
	return nil
}

func writeRepair(ctx context.Context, tx *sqlstore.Tx, step *models.Repair) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO repairs (id, campaign_id, what, value_before, value_after, at) VALUES (?, ?, ?, ?, ?, ?)",
		step.ID, step.CampaignID, step.What, step.ValueBefore, step.ValueAfter, step.At.Format(sqlstore.TimeLayout))
	if err != nil {
		return err
	}
	return audit.Put(ctx, tx, models.AuditBooksRepaired, step.CampaignID,
		map[string]string{step.What: step.ValueBefore}, map[string]string{step.What: step.ValueAfter})
}

func repairOf(campaignID, what, before, after string) (*models.Repair, error) {
	id, err := uuid.NewV7()
	return &models.Repair{
		ID: id.String(), CampaignID: campaignID, What: what,
		ValueBefore: sqlstore.Cut(before, models.ReasonLength), ValueAfter: sqlstore.Cut(after, models.ReasonLength), At: sqlstore.Now(),
	}, err
}

// locked runs change in a transaction that holds the row of the campaign, and so any flush of it. It is run again when it
// lost against another transaction.
func (r *Reconciler) locked(ctx context.Context, id string, change func(tx *sqlstore.Tx, c *models.Campaign) error) error {
	return sqlstore.Retry(ctx, func() error {
		return sqlstore.InTx(ctx, r.db, func(tx *sqlstore.Tx) error {
			// Before the first read, which makes the snapshot: it then holds every flush that is not waiting for this lock.
			if _, err := tx.ExecContext(ctx, "UPDATE lots SET total = total WHERE id = ?", id); err != nil {
				return err
			}
			var c models.Campaign
			if _, err := readBooks(ctx, tx, id, &c); err != nil {
				return err
			}
			return change(tx, &c)
		})
	})
}
