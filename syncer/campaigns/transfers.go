package campaigns

import (
	"context"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
)

// ReadTransfers reads the rows of debits and credits of a lot, in order.
func ReadTransfers(ctx context.Context, q sqlstore.Querier, lotID string) (rows []models.Event, err error) {
	campaignID, shard := models.SplitShardID(lotID)
	err = sqlstore.ScanAll(ctx, q, "SELECT tseq, kind, peer, units, cumulative, COALESCE(packets, '') FROM stock_moves"+
		" WHERE campaign_id = ? AND shard = ? ORDER BY tseq", []any{campaignID, shard}, func(scan func(...any) error) error {
		e := models.Event{CampaignID: campaignID, Shard: shard}
		var packets string
		err := scan(&e.TSeq, &e.Type, &e.Peer, &e.Quantity, &e.Cumulative, &packets)
		if packets != "" {
			e.IDs = strings.Split(packets, ",")
		}
		rows = append(rows, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("campaigns: transfers of %s: %w", lotID, err)
	}
	return rows, nil
}

// Counted is what a lot counts of each peer by its rows.
func Counted(rows []models.Event) lua.Transfers {
	t := lua.Transfers{Out: make(map[int]int64), In: make(map[int]int64), Load: make(map[int]int64)}
	for i := range rows {
		of := t.In
		if rows[i].Type == models.EventUnitsDebited {
			of = t.Out
		}
		of[rows[i].Peer] = max(of[rows[i].Peer], rows[i].Cumulative)
	}
	return t
}

// PacketsOf are the packets of rows of one kind and peer, in the order in which they went. One that no row names is "".
func PacketsOf(rows []models.Event, kind models.EventType, peer int) (ids []string) {
	for i := range rows {
		e := &rows[i]
		if e.Type != kind || e.Peer != peer {
			continue
		}
		if lacks := e.Cumulative - int64(len(ids)); lacks > 0 {
			ids = append(ids, make([]string, lacks)...)
		}
		copy(ids[e.Cumulative-e.Quantity:], e.IDs)
	}
	return ids
}

// PacketsOfLot returns which packets a lot has by its rows, whoever owns them: ids, or all of the campaign but ids. A campaign of one shard
// has all, and a reserve all but those that it debited.
func PacketsOfLot(ctx context.Context, q sqlstore.Querier, lotID string) (ids []string, allBut bool, err error) {
	_, shard := models.SplitShardID(lotID)
	if shard == 0 {
		return nil, true, nil
	}
	allBut = shard == models.ReserveLot
	rows, err := ReadTransfers(ctx, q, lotID)
	came := make(map[string]int)
	for i := range rows {
		n := 1
		if rows[i].Type == models.EventUnitsDebited {
			n = -1
		}
		for _, id := range rows[i].IDs {
			came[id] += n
		}
	}
	for id, n := range came {
		if allBut && n < 0 || !allBut && n > 0 {
			ids = append(ids, id)
		}
	}
	return ids, allBut, err
}
