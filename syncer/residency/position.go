package residency

import (
	"context"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// appliedReleases is how many releases of a campaign Redis has applied in the load that MySQL knows: those that were decided, less
// those that wait in the outbox. One statement reads both, as of one moment.
const appliedReleases = "released_claims - (SELECT COUNT(*) FROM outbox" +
	" WHERE outbox.campaign_id = lots.id" +
	" AND outbox.kind = '" + string(models.OutboxRelease) + "')"

// known is how far Redis must be with a campaign. Redis is read afterwards, and then is no less far unless it was rolled back.
func (h *Hydrator) known(ctx context.Context, c *models.Campaign) (lua.Position, error) {
	known := campaigns.Known(c)
	epoch := int64(0)
	if c.ReleasedClaims == 0 {
		return known, nil
	}
	query := "SELECT " + appliedReleases + ", epoch FROM lots WHERE id = ?"
	applied := sqlstore.On(h.db.WithContext(ctx)).Row(query, c.ID)
	if err := applied.Scan(&known.Released, &epoch); err != nil {
		return known, fmt.Errorf("residency: campaign %s: %w", c.ID, err)
	}
	if epoch != c.Epoch { // it was loaded in the meantime: the next look tells
		known.Released = 0
	}
	return known, nil
}
