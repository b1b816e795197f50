package operator

import (
	"context"
	"time"

	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

// ShardsOutput is the answer of GetShards.
type ShardsOutput struct{ Body models.ShardsOf }

// GetShards is GET /v1/campaigns/{id}/shards.
func (s *Routes) GetShards(ctx context.Context, in *campaignInput) (*ShardsOutput, error) {
	if p := wire.InvalidID("id", models.CheckCampaignID(in.ID)); p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	of, err := s.cfg.Campaigns.ShardsOf(ctx, in.ID)
	if err != nil {
		return nil, s.refuse(ctx, "shards", in.ID, err, "MySQL does not answer. Send the request again.")
	}
	return &ShardsOutput{of}, nil
}

// shardsState sums up a campaign's shards as one state. It has no version,
// so a move under way is no drift.
func shardsState(of *models.ShardsOf) lua.State {
	st := lua.State{
		Meta: lua.Meta{ID: of.CampaignID, Kind: models.KindCoupon, Shards: len(of.Shards)}, Version: -1, Total: of.Total,
		LowStockAt: of.LowStockAt, Released: of.Released, Sold: of.Sold, AsOf: time.Now().UTC(),
	}
	for i := range of.Shards {
		st.Taken += of.Shards[i].Claimed
		st.Seq += of.Shards[i].Seq
	}
	return st
}
