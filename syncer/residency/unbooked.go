package residency

import (
	"context"
	"encoding/json"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

const (
	// unbookedEntries is how many entries of a stream are read to find the claims that MySQL lacks. With more, all campaigns are asked.
	unbookedEntries = 1000
	// unbookedLots bounds the campaigns and shards whose claims are recorded one by one.
	unbookedLots    = 1000
	positionsAtOnce = 500
)

// unbooked are the claims of a partition that Redis has accepted and MySQL does not have. They are recorded in streams.unbooked, so that a
// repair can name them if Redis loses them.
type unbooked struct {
	Lots map[string][2]int64 `json:"lots"` // by the id of a campaign or shard: load, and the highest seq
	More int64               `json:"more"` // claims of those that are not in Lots
}

// add adds a claim, or the highest of some claims, of a campaign or shard.
func (u *unbooked) add(id string, at lua.Position, claims int64) {
	last, listed := u.Lots[id]
	if !listed && len(u.Lots) >= unbookedLots {
		u.More += claims
		return
	}
	if (lua.Position{Epoch: last[0], Seq: last[1]}).Before(at) {
		u.Lots[id] = [2]int64{at.Epoch, at.Seq}
	}
}

// readUnbooked returns what streams.unbooked has to say of an intact stream; "" is nothing.
func (s *streams) readUnbooked(ctx context.Context, seen *observed) (string, error) {
	partition := seen.row.Partition
	unread, err := s.scripts.Unread(ctx, partition, models.GroupSyncer)
	if err != nil || unread.Upto(seen.stream.Tip) {
		return "", err
	}
	entries, err := s.scripts.Entries(ctx, partition, unread.First(), unbookedEntries)
	if err != nil {
		return "", err
	}
	found := unbooked{Lots: make(map[string][2]int64)}
	if len(entries) == unbookedEntries {
		err = s.unbookedOfAll(ctx, partition, &found)
	} else {
		for i := range entries {
			e, err := models.DecodeEvent([]byte(entries[i].Payload))
			if err == nil && e.Type == models.EventClaimAccepted { // the consumer puts aside what cannot be read
				found.add(e.LotID(), lua.Position{Epoch: e.Epoch, Seq: e.Seq}, 1)
			}
		}
	}
	if err != nil || len(found.Lots) == 0 {
		return "", err
	}
	text, err := json.Marshal(found)
	return string(text), err
}

// unbookedOfAll compares what Redis holds of each campaign and shard of a partition with MySQL.
func (s *streams) unbookedOfAll(ctx context.Context, partition int, found *unbooked) error {
	fetch := campaigns.Lots(ctx, s.db, positionsAtOnce, "id, epoch, synced_seq", "`partition` = ? AND residency = ?",
		partition, models.ResidencyResident)
	for page, err := range sqlstore.Pages(campaigns.ID, fetch) {
		if err != nil {
			return err
		}
		positions, err := s.scripts.Positions(ctx, sqlstore.Keys(page, campaigns.ID))
		if err != nil {
			return err
		}
		for i := range page {
			if missing := positions[i].Seq - page[i].SyncedSeq; positions[i].Epoch == page[i].Epoch && missing > 0 {
				found.add(page[i].ID, positions[i], missing)
			}
		}
	}
	return nil
}

// keepUnbooked keeps for a repair which claims MySQL did not have when Redis lost a stream: the highest seq of each campaign and shard, in
// seen_seq. It returns how many claims there were besides, of campaigns that are not recorded.
func (s *streams) keepUnbooked(ctx context.Context, partition int) (unexplained int64, err error) {
	var text string
	err = sqlstore.On(s.db.WithContext(ctx)).Row("SELECT COALESCE(unbooked, '') FROM streams WHERE `partition` = ?", partition).Scan(&text)
	if err != nil || text == "" {
		return 0, err
	}
	var lost unbooked
	if err := json.Unmarshal([]byte(text), &lost); err != nil {
		return 0, fmt.Errorf("unbooked: %w", err)
	}
	for id, at := range lost.Lots {
		if err := s.see(ctx, id, lua.Position{Epoch: at[0], Seq: at[1]}); err != nil {
			return 0, err
		}
	}
	return lost.More, nil
}

// stillUnexplained returns how many claims of an earlier loss are unexplained, as long as a campaign waits for a repair because of it.
func (s *streams) stillUnexplained(ctx context.Context, row *models.StreamRecord) (int64, error) {
	if row.Unexplained == 0 {
		return 0, nil
	}
	waiting, err := campaigns.Lots(ctx, s.db, 1, "id", "`partition` = ? AND epoch > 0 AND residency IN ? AND stream_birth <> ?",
		row.Partition, []models.Residency{models.ResidencyResident, models.ResidencyLost}, row.Generation)("")
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	return row.Unexplained, nil
}

// see records in MySQL that a load of a campaign or shard had so many claims.
func (s *streams) see(ctx context.Context, id string, at lua.Position) error {
	return sqlstore.On(s.db.WithContext(ctx)).Run("UPDATE lots SET seen_seq = ? WHERE id = ? AND epoch = ? AND seen_seq < ?",
		at.Seq, id, at.Epoch, at.Seq)
}
