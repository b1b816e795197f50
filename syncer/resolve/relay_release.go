package resolve

import (
	"context"
	"errors"
	"fmt"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// giveBack has Redis take back what the claims of rows held, all of one campaign.
//
// MySQL is asked first where the campaign is. In Redis, under the load that MySQL knows: the script gives back each claim
// once. Not in Redis: whatever is loaded from now on is loaded from rows that say released already, because a load is
// confirmed only if the books are those that it was made from; so the event is all that is left to tell. Anything else is on
// its way from one to the other, and waits.
func (r *Relay) giveBack(ctx context.Context, rows []models.OutboxRow) (done []string, err error) {
	c, err := campaigns.Read(r.cfg.DB.WithContext(ctx), rows[0].CampaignID)
	if err != nil {
		return nil, err
	}
	r.step("looked")
	if !campaigns.IsResident(&c) {
		return r.tellEvents(ctx, rows)
	}
	releases, known, err := releasesOf(rows)
	if len(releases) == 0 {
		return nil, err
	}
	outcomes, releaseErr := r.cfg.Scripts.Release(ctx, &c, releases)
	if releaseErr != nil {
		return nil, errors.Join(fmt.Errorf("syncer: outbox of %s: %w", c.ID, releaseErr), err)
	}
	for i, outcome := range outcomes {
		if outcome == lua.ReleasedDamaged {
			err = errors.Join(err, fmt.Errorf("%w: %s: redis does not hold claim %s as mysql does", errRow, known[i].ID, releases[i].Claim.ID))
			continue
		}
		done = append(done, known[i].ID)
		r.metrics.applied.WithLabelValues(string(models.OutboxRelease)).Inc()
	}
	return done, err
}

// releasesOf reads the claims of rows. Rows that can't be read are left out.
func releasesOf(rows []models.OutboxRow) (releases []lua.Release, known []*models.OutboxRow, err error) {
	for i := range rows {
		row := &rows[i]
		e, bad := models.DecodeEvent(row.Payload)
		if bad == nil && (e.Type != models.EventClaimReleased || e.ID != row.ID || e.CampaignID != row.CampaignID) {
			bad = errOutboxKind
		}
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("%w: %s: %w", errRow, row.ID, bad))
			continue
		}
		releases = append(releases, lua.Release{
			Claim: lua.ClaimRecord{
				ID: []byte(e.ClaimID), UserID: []byte(e.UserID), KeyDigest: []byte(e.Key), Seq: e.Seq, Quantity: e.Quantity, At: e.ClaimedAt.Time,
			},
			EventID: row.ID, Event: row.Payload,
		})
		known = append(known, row)
	}
	return releases, known, err
}
