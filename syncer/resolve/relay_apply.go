package resolve

import (
	"context"
	"errors"
	"fmt"

	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
)

// applyToRedis delivers the rows of one campaign. c is nil without
// releases. It returns the ids of delivered rows and of bad ones.
// Adjacent releases share a call.
func (r *Relay) applyToRedis(ctx context.Context, c *models.Campaign, rows []stored.OutboxRow) (done, bad []string, err error) {
	var failed []error
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && n < lua.ReleasesMax && rows[n].Kind == rows[0].Kind && rows[0].Kind == stored.OutboxRelease {
			n++
		}
		part := rows[:n]
		rows = rows[n:]
		var ids, refused []string
		switch part[0].Kind {
		case stored.OutboxEvent:
			ids, err = r.publish(ctx, part)
		case stored.OutboxRelease:
			ids, refused, err = r.release(ctx, c, part)
		default:
			refused = []string{part[0].ID}
			err = fmt.Errorf("%w: %s is a %.20q", errOutboxKind, part[0].ID, part[0].Kind)
		}
		done = append(done, ids...)
		bad = append(bad, refused...)
		failed = append(failed, err)
		if err != nil && !errors.Is(err, errRow) && !errors.Is(err, errOutboxKind) {
			break // the others would fail as well
		}
	}
	return done, bad, errors.Join(failed...)
}

func (r *Relay) publish(ctx context.Context, rows []stored.OutboxRow) (done []string, err error) {
	for i := range rows {
		if err := r.scripts.Append(ctx, rows[i].LotID, rows[i].ID, rows[i].Payload); err != nil {
			return done, fmt.Errorf("resolve: outbox %s: %w", rows[i].ID, err)
		}
		done = append(done, rows[i].ID)
		r.metrics.applied.WithLabelValues(string(rows[i].Kind)).Inc()
	}
	return done, nil
}

// release frees in Redis what claims of one campaign took.
//
// A live lot counts each claim once. For one that is away only the
// event is appended, as the next load reads the rows. During a load
// they wait, as it may have read the claims before.
func (r *Relay) release(ctx context.Context, c *models.Campaign, rows []stored.OutboxRow) (done, bad []string, err error) {
	if c == nil {
		return nil, nil, fmt.Errorf("resolve: outbox %s: %w: campaign %s", rows[0].ID, models.ErrNotFound, rows[0].LotID)
	}
	releases, ids, bad, err := releasesOf(rows)
	if len(releases) == 0 {
		return nil, bad, err
	}
	outcomes, releaseErr := r.scripts.Release(ctx, c, releases)
	isStopped := errors.Is(releaseErr, lua.ErrOther)
	// the next round delivers
	if r.loader != nil && (isStopped || errors.Is(releaseErr, lua.ErrDamaged)) {
		_, loadErr := r.loader.Recover(ctx, c.ID, lua.Position{})
		err = errors.Join(err, loadErr)
	}
	if isStopped {
		return nil, bad, err
	}
	if releaseErr != nil {
		return nil, bad, errors.Join(fmt.Errorf("resolve: outbox of %s: %w", c.ID, releaseErr), err)
	}
	for i, outcome := range outcomes {
		if outcome == lua.ReleasedDamaged {
			bad = append(bad, ids[i])
			err = errors.Join(err, fmt.Errorf("%w: %s: redis does not hold claim %s as mysql does",
				errRow, ids[i], releases[i].Claim.ID))
			continue
		}
		done = append(done, ids[i])
		r.metrics.applied.WithLabelValues(string(stored.OutboxRelease)).Inc()
	}
	return done, bad, err
}

// releasesOf returns the releases of rows,
// and their ids. Rows in bad are unreadable.
func releasesOf(rows []stored.OutboxRow) (releases []lua.Release, ids, bad []string, err error) {
	for i := range rows {
		row := &rows[i]
		release, rowErr := releaseOf(row)
		if rowErr != nil {
			bad = append(bad, row.ID)
			err = errors.Join(err, fmt.Errorf("%w: %s: %w", errRow, row.ID, rowErr))
			continue
		}
		releases = append(releases, release)
		ids = append(ids, row.ID)
	}
	return releases, ids, bad, err
}

func releaseOf(row *stored.OutboxRow) (release lua.Release, err error) {
	e := row.Event
	if e == nil {
		var decoded event.Event
		decoded, err = event.Decode(row.Payload)
		e = &decoded
	}
	switch {
	case err != nil:
		return release, err
	case e.Type != event.ClaimReleased || e.ID != row.ID || e.LotID() != row.LotID:
		return release, errors.New("its event is of something else")
	}
	return lua.Release{
		Claim: lua.ClaimRecord{
			ID: []byte(e.ClaimID), UserID: []byte(e.UserID), KeyDigest: []byte(e.Key), Seq: e.Seq,
			Quantity: e.Quantity, At: e.ClaimedAt.Time, Subjects: e.Subjects,
		},
		EventID: row.ID, Event: row.Payload,
	}, nil
}
