package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"dibs/internal/audit"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/residency"

	"github.com/google/uuid"
)

// What a repair puts right, as it stands in repairs.what.
const (
	RepairClaims    = "claims"    // rows that were missing came back, from events or from what Redis recorded; or a release did
	RepairPlaces    = "places"    // a claim whose place another has got a new one
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

// Repair corrects the books of a campaign by the evidence, which is the rows of claims, the events that are in
// the claim stream still, those that are parked, and the records of claims that Redis holds:
//
//  1. a parked claim is written, if that works by now;
//  2. a row that is missing comes back from its event, or from its record in Redis;
//  3. packets that claims have, but that are no one's by their own rows, get their owners;
//  4. counters in MySQL are recreated from the rows;
//  5. the campaign takes no claims, if Redis differs then or claims have lost their place to others: these get new places while
//     stock lasts, and Redis is rebuilt from the rows and the claims that are parked still, under a new epoch;
//  6. lists of packets that earlier loads left behind are taken away.
//
// A claim that was answered is given up only if how says so. Else what it lacks is told in Left, and Redis is not rebuilt where that
// would free its units. Each step is safe to repeat and leaves books that the next may start from. What agrees is not touched.
// An error does not undo the steps before it, which are returned beside it. Errors: models.ErrNotFound, ErrParked, ErrUnsynced
// (the campaign takes no claims and is rebuilt as soon as the consumers have caught up), those of lua.Scripts and of the database.
func (r *Reconciler) Repair(ctx context.Context, campaignID string, how RepairHow) (Repaired, error) {
	if c, err := campaigns.Read(r.db.WithContext(ctx), campaignID); err == nil && c.IsSharded() {
		return r.repairShards(ctx, &c, how)
	}
	found, err := r.Compare(ctx, campaignID, DepthUsers)
	p := &repair{r: r, id: campaignID, how: how, done: Repaired{Found: found, Left: found, Steps: []models.Repair{}}}
	if err != nil || found.Agrees() && !found.parked {
		return p.done, err
	}
	for _, step := range []func(context.Context) error{
		p.ask, p.retryParked, p.restoreFromStream, p.restoreFromRedis, p.restoreOwners, p.recount, p.compare,
		p.repairRedis, p.dropForgotten,
	} {
		if err := step(ctx); err != nil {
			return p.done, fmt.Errorf("reconcile: repair %s: %w", campaignID, err)
		}
	}
	if ofCampaign, shard := models.SplitShardID(campaignID); shard > 0 {
		return p.done, campaigns.SumShards(ctx, r.db, ofCampaign)
	}
	return p.done, nil
}

// repair is one call of Repair.
type repair struct {
	r       *Reconciler
	id      string
	how     RepairHow
	done    Repaired
	redis   witness
	stopped bool              // the campaign takes no claims, and each claim that Redis took has its row or is parked
	missing []places          // that were answered, and that nothing accounts for
	loss    residency.Loss    // of the claim stream, since the campaign was loaded
	unknown []string          // ids of claims that Redis has a record of, but not of whose they are
	noPlace map[string]string // claimsWithoutSeq claims that can't have a new place, by their id among those that are parked, and why
}

// compare looks at what is left, with what only the repair knows of.
func (p *repair) compare(ctx context.Context) (err error) {
	p.done.Left, err = p.r.Compare(ctx, p.id, DepthUsers)
	if err != nil || p.done.Left.Agrees() {
		return err
	}
	if len(p.unknown) > 0 {
		p.done.Left.differf("redis has records of claims without a row, and does not tell whose they are: %s", joined(p.unknown))
	}
	for _, id := range slices.Sorted(maps.Keys(p.noPlace)) {
		p.done.Left.differf("claim %s lost its place and can have no other: %s", id, p.noPlace[id])
	}
	if p.loss.Unexplained > 0 && !p.how.GiveUpClaims {
		p.done.Left.differf("redis lost %d claims of campaigns that are not known, perhaps of this one (%s);"+
			" `dibs reconcile --repair --give-up-claims` opens it, and gives up those of them that were its own", p.loss.Unexplained, p.loss.Reason)
	}
	if len(p.missing) > 0 {
		p.done.Left.differf("claims that were answered have no row, and nothing is left of them: %s;"+
			" `dibs reconcile --repair --give-up-claims` gives them up, and their units are free again", namesOf(p.missing))
	}
	return nil
}

// repairRedis has Redis hold what the rows say, and nothing else.
func (p *repair) repairRedis(ctx context.Context) error {
	displaced, err := p.claimsWithoutSeq(ctx)
	switch {
	case err != nil:
		return err
	case !p.done.Left.inRedis && len(displaced) == 0 && len(p.missing) == 0 && (!p.how.GiveUpClaims || !p.done.Left.parked):
		return p.compare(ctx)
	case (len(p.missing) > 0 || p.loss.Unexplained > 0) && !p.how.GiveUpClaims:
		return p.compare(ctx) // which tells them; a rebuild would free their units
	}
	if err := p.r.hydrator.Stop(ctx, p.id); err != nil {
		return err
	}
	p.stopped = true
	for _, step := range []func(context.Context) error{p.place, p.giveUpParked, p.recount} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if len(p.missing) > 0 {
		return p.compare(ctx)
	}
	if err := p.noneInTheWay(ctx); err != nil {
		return err
	}
	if err := p.rebuild(ctx); err != nil {
		return err
	}
	return p.compare(ctx)
}

// rebuild has Redis hold what the rows say.
func (p *repair) rebuild(ctx context.Context) error {
	report, err := p.r.hydrator.Rebuild(ctx, p.id)
	if err != nil {
		return err
	}
	before := "not there"
	if w := p.redis; w.held {
		before = fmt.Sprintf("epoch %d, %d claims, %d units taken", w.state.Epoch, w.state.Seq, w.state.Taken)
	}
	after := fmt.Sprintf("epoch %d, %d claims, %d units taken, %d claims known to be lost",
		report.Epoch, report.Claims, report.Units, report.LostClaims)
	if p.loss.Reason != "" {
		after += "; " + p.loss.Reason
	}
	return p.record(ctx, RepairRedis, before, after)
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
	return p.change(ctx, func(*sql.Tx, *models.Campaign) (*models.Repair, error) { return repairOf(p.id, what, before, after) })
}

// change makes one step in a transaction that holds the row of the campaign. change returns nil when there is nothing to do.
func (p *repair) change(ctx context.Context, change func(tx *sql.Tx, c *models.Campaign) (*models.Repair, error)) error {
	var step *models.Repair
	err := p.r.locked(ctx, p.id, func(tx *sql.Tx, c *models.Campaign) (err error) {
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

func writeRepair(ctx context.Context, tx *sql.Tx, step *models.Repair) error {
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
func (r *Reconciler) locked(ctx context.Context, id string, change func(tx *sql.Tx, c *models.Campaign) error) error {
	return sqlstore.Retry(ctx, func() error {
		return sqlstore.InTx(ctx, r.db, func(tx *sql.Tx) error {
			// Before the first read, which makes the snapshot: it then holds every flush that is not waiting for this lock.
			if _, err := tx.ExecContext(ctx, "UPDATE lots SET version = version WHERE id = ?", id); err != nil {
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

func (r *Reconciler) keysOf(id string) lua.CampaignKeys {
	return lua.KeysOf(id, lua.PartitionOf(id, r.scripts.Partitions()))
}
