package resolve

import (
	"context"
	"errors"
	"fmt"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// message is a row of outbox on its way to Redis.
type message struct {
	models.OutboxRow

	release *lua.Release // what an OutboxRelease gives back; nil until it is read from the payload
}

// applyToRedis is step 1 for the rows of one campaign, which is c if some are releases, and returns the ids of those that
// Redis has. Releases that follow each other share a call.
func (r *Relay) applyToRedis(ctx context.Context, c *models.Campaign, rows []message) (done []string, err error) {
	var failed []error
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && n < lua.ReleasesMax && rows[n].Kind == rows[0].Kind && rows[0].Kind == models.OutboxRelease {
			n++
		}
		part := rows[:n]
		rows = rows[n:]
		var ids []string
		switch part[0].Kind {
		case models.OutboxEvent:
			ids, err = r.publish(ctx, part)
		case models.OutboxRelease:
			ids, err = r.release(ctx, c, part)
		default:
			err = &rowError{part[0].ID, fmt.Errorf("%w: %s is a %.20q", errOutboxKind, part[0].ID, part[0].Kind)}
		}
		done = append(done, ids...)
		if err != nil {
			failed = append(failed, err)
		}
		if err != nil && !errors.Is(err, errRow) && !errors.Is(err, errOutboxKind) {
			break // the rest of the campaign would fare the same
		}
	}
	return done, errors.Join(failed...)
}

// publish adds the events of rows to the claim stream.
func (r *Relay) publish(ctx context.Context, rows []message) (done []string, err error) {
	for i := range rows {
		if err := r.scripts.Append(ctx, rows[i].CampaignID, rows[i].ID, rows[i].Payload); err != nil {
			return done, fmt.Errorf("resolve: outbox %s: %w", rows[i].ID, err)
		}
		done = append(done, rows[i].ID)
		r.metrics.applied.WithLabelValues(string(rows[i].Kind)).Inc()
	}
	return done, nil
}

// release gives back in Redis what the claims of rows took, all of one campaign.
//
// MySQL says where the campaign is. In Redis, under the load that MySQL knows: release.lua gives back each claim once. Not in
// Redis, and no load started: only the event is left to publish, because each later load reads rows that say released. While a
// load is under way the rows wait for its end: it may have read the claims before they were released.
func (r *Relay) release(ctx context.Context, c *models.Campaign, rows []message) (done []string, err error) {
	switch {
	case c == nil:
		return nil, fmt.Errorf("resolve: outbox %s: %w: campaign %s", rows[0].ID, models.ErrNotFound, rows[0].CampaignID)
	case campaigns.IsResident(c):
	case c.LoadAttempts > c.Epoch:
		return nil, nil
	default:
		return r.publish(ctx, rows)
	}
	releases, known, err := releasesOf(rows)
	if len(releases) == 0 {
		return nil, err
	}
	outcomes, releaseErr := r.scripts.Release(ctx, c, releases)
	if errors.Is(releaseErr, lua.ErrDamaged) && r.hydrator != nil { // the next round finds the lot loaded
		_, err := r.hydrator.Hydrate(ctx, c.ID)
		releaseErr = errors.Join(releaseErr, err)
	}
	if releaseErr != nil {
		return nil, errors.Join(fmt.Errorf("resolve: outbox of %s: %w", c.ID, releaseErr), err)
	}
	for i, outcome := range outcomes {
		if outcome == lua.ReleasedDamaged {
			err = errors.Join(err, &rowError{known[i].ID,
				fmt.Errorf("%w: %s: redis does not hold claim %s as mysql does", errRow, known[i].ID, releases[i].Claim.ID)})
			continue
		}
		done = append(done, known[i].ID)
		r.metrics.applied.WithLabelValues(string(models.OutboxRelease)).Inc()
	}
	return done, err
}

// releasesOf are the releases of rows. Rows that can't be read are left out, and err names them.
func releasesOf(rows []message) (releases []lua.Release, known []*message, err error) {
	for i := range rows {
		row := &rows[i]
		if bad := row.read(); bad != nil {
			err = errors.Join(err, &rowError{row.ID, fmt.Errorf("%w: %s: %w", errRow, row.ID, bad)})
			continue
		}
		releases = append(releases, *row.release)
		known = append(known, row)
	}
	return releases, known, err
}

// read reads the release from the payload, unless it is known.
func (m *message) read() error {
	if m.release != nil {
		return nil
	}
	e, err := models.DecodeEvent(m.Payload)
	if err != nil {
		return err
	}
	if e.Type != models.EventClaimReleased || e.ID != m.ID || e.LotID() != m.CampaignID {
		return errors.New("its event is of something else")
	}
	m.release = &lua.Release{
		Claim: lua.ClaimRecord{
			ID: []byte(e.ClaimID), UserID: []byte(e.UserID), KeyDigest: []byte(e.Key), Seq: e.Seq, Quantity: e.Quantity, At: e.ClaimedAt.Time,
			Subjects: e.Subjects,
		},
		EventID: m.ID, Event: m.Payload,
	}
	return nil
}

// releaseOf is the release of a claim that was decided in this process.
func releaseOf(c *heldClaim) *lua.Release {
	return &lua.Release{
		Claim: lua.ClaimRecord{
			ID: []byte(c.ID), UserID: []byte(c.UserID), KeyDigest: []byte(c.KeyDigest), Seq: c.Seq, Quantity: c.Quantity, At: c.ClaimedAt,
			Subjects: c.Subjects,
		},
		EventID: c.outbox.ID, Event: c.outbox.Payload,
	}
}
