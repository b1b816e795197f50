package operator

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/lua"
	"dibs/models"
)

// StockOutput is the answer of GetStock.
type StockOutput struct{ Body models.Stock }

const (
	// stockReads bounds the reads of MySQL and Redis until both are at one
	// watermark.
	stockReads = 4
	// stockPause is the pause between two reads, shorter than a flush. In a
	// rush they may never be at one watermark.
	stockPause = 5 * time.Millisecond
)

var errLag = errors.New("operator: mysql and redis are not at one watermark")

// GetStock is GET /v1/campaigns/{id}/stock.
func (s *Routes) GetStock(ctx context.Context, in *campaignInput) (*StockOutput, error) {
	if p := wire.InvalidID("id", models.CheckCampaignID(in.ID)); p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if caller.Of(ctx).User != "" {
		c, p := s.campaign(ctx, in.ID)
		switch {
		case p != nil:
			return nil, p
		case hiddenFrom(ctx, &c):
			return nil, wire.Refuse(wire.CodeCampaignNotFound)
		}
	}
	stock, err := backoff.Retry(ctx, func() (models.Stock, error) {
		books, state, err := s.readStock(ctx, in.ID)
		switch {
		case err != nil:
			return models.Stock{}, backoff.Permanent(err)
		case !books.InRedis && books.Shards <= 1:
			return books.Stock(in.ID), nil
		}
		if books.Sold+books.ParkedUnits+books.LostUnits+books.GivenUpUnits != state.Sold || books.Released != state.Released {
			err = errLag
		}
		return state.Stock(&books), err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(stockPause)), backoff.WithMaxTries(stockReads))
	if err != nil && !errors.Is(err, errLag) {
		return nil, s.refuse(ctx, "stock", in.ID, err, "Redis or MySQL does not answer, or the campaign can't be loaded. Send the request again.")
	}
	return &StockOutput{stock}, nil
}

// readStock reads MySQL first, so that Redis is never behind. MySQL learns
// of a load only after claims are made. A campaign that was evicted or
// never claimed from isn't loaded just to be read: MySQL has all of it.
func (s *Routes) readStock(ctx context.Context, id string) (models.Books, lua.State, error) {
	books, err := s.cfg.Campaigns.Books(ctx, id)
	if err == nil && books.Shards > 1 {
		of, err := s.cfg.Campaigns.ShardsOf(ctx, id)
		return books, shardsState(&of), err
	}
	if err != nil {
		return books, lua.State{}, err
	}
	state, err := s.cfg.State(ctx, id)
	if err != nil && !books.InRedis {
		return books, lua.State{}, nil
	}
	books.InRedis = true
	if errors.Is(err, lua.ErrAbsent) {
		_, err = s.cfg.Load(ctx, id)
		if err == nil {
			state, err = s.cfg.State(ctx, id)
		}
	}
	return books, state, err
}
