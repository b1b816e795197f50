package reconcile

import (
	"context"
	"encoding/json"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
)

// quantitiesTried is the largest quantity of a claim that is found by its digest.
const quantitiesTried = 100

// restoreFromRedis restores rows of claims, and releases, that MySQL lacks and Redis has recorded. It reads only where everything
// that Redis accepted has gone through the consumers, else a claim may be on its way.
func (p *repair) restoreFromRedis(ctx context.Context) error {
	if !p.lot.Settled && !p.lot.Acknowledged {
		return nil
	}
	var lacking []lua.RecordedClaim
	err := p.r.scripts.ScanClaimRecords(ctx, p.id, func(page []lua.RecordedClaim) error {
		known, err := knownClaims(ctx, p.r.db.ConnPool, sqlstore.Keys(page, func(c *lua.RecordedClaim) string { return c.ID }))
		if err != nil {
			return err
		}
		var released []string
		for i := range page {
			switch {
			case !known[page[i].ID]:
				lacking = append(lacking, page[i])
			case page[i].Released:
				released = append(released, page[i].ID)
			}
		}
		return p.release(ctx, released)
	})
	if err != nil || len(lacking) == 0 {
		return err
	}
	events, released, err := p.identify(ctx, lacking)
	if err == nil {
		err = p.insert(ctx, events, "their records in redis")
	}
	if err != nil {
		return err
	}
	return p.release(ctx, released)
}

// identify finds out whose claims are: a user of the campaign and a quantity that give the digest in the record.
func (p *repair) identify(ctx context.Context, lacking []lua.RecordedClaim) (events []models.Event, released []string, err error) {
	byBody := make(map[lua.BodyDigest][]*lua.RecordedClaim)
	for i := range lacking {
		byBody[lacking[i].Body] = append(byBody[lacking[i].Body], &lacking[i])
	}
	var users []string
	if err := p.r.scripts.ScanUserRecords(ctx, p.id, func(field, _ string) {
		if lua.IsUser(field) {
			users = append(users, field)
		}
	}); err != nil {
		return nil, nil, err
	}
	for quantity := int64(1); quantity <= quantitiesTried && len(byBody) > 0; quantity++ {
		for _, user := range users {
			body := lua.BodyDigestOf(user, quantity, nil) // those of claims with other subjects are not found
			for _, c := range byBody[body] {
				events = append(events, eventOf(p.id, user, quantity, p.lot.Redis.At.Epoch, c))
				if c.Released {
					released = append(released, c.ID)
				}
			}
			delete(byBody, body)
		}
	}
	for _, claims := range byBody {
		for _, c := range claims {
			p.unknown = append(p.unknown, fmt.Sprintf("%s (seq %d)", c.ID, c.Seq))
		}
	}
	return events, released, nil
}

func eventOf(id, user string, quantity, epoch int64, c *lua.RecordedClaim) models.Event {
	campaignID, shard := models.SplitShardID(id)
	e := models.Event{
		V: models.EventVersion, Type: models.EventClaimAccepted, ID: c.ID, CampaignID: campaignID, Shard: shard, UserID: user, Quantity: quantity,
		Key: c.KeyDigest, Epoch: epoch, Seq: c.Seq, At: models.TimeFromMs(c.AtMs), PacketID: c.PacketID,
	}
	if c.PacketID != "" {
		e.Amount = &c.Amount
	}
	return e
}

// payloadOf is an event as the claim stream would hold it.
func payloadOf(e *models.Event) []byte {
	payload, _ := json.Marshal(e) //nolint:errchkjson // it has nothing that JSON lacks
	return payload
}
