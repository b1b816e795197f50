package operator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

type stockOutput struct{ Body models.Stock }

const (
	// stockReads is how often books and state are read until they meet at one watermark.
	stockReads = 4
	// stockPause between two reads is some flushes short: during a rush they need not meet at all.
	stockPause = 5 * time.Millisecond
)

// getStock is GET /v1/campaigns/{id}/stock.
func (s *Routes) GetStock(ctx context.Context, in *campaignInput) (*stockOutput, error) {
	if err := models.CheckCampaignID(in.ID); err != nil {
		return nil, wire.Invalid("id", wire.IDReason(err))
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AdminTimeout)
	defer cancel()
	stock, err := backoff.Retry(ctx, func() (models.Stock, error) {
		books, state, err := s.readStock(ctx, in.ID)
		if err != nil {
			return models.Stock{}, backoff.Permanent(err)
		}
		if books.SyncedSeq+books.ParkedClaims != state.Seq || books.Released != state.Released {
			err = errNotMet
		}
		return stockOf(&books, &state), err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(stockPause)), backoff.WithMaxTries(stockReads))
	if err != nil && !errors.Is(err, errNotMet) {
		return nil, s.stockProblem(in.ID, err)
	}
	return &stockOutput{stock}, nil
}

// errNotMet says that books and state were not read at one watermark.
var errNotMet = errors.New("api: books and state are not at one watermark")

// readStock reads MySQL first: what Redis says afterwards is then never behind it.
func (s *Routes) readStock(ctx context.Context, id string) (models.Books, lua.State, error) {
	books, err := s.cfg.Campaigns.Books(ctx, id)
	if err != nil {
		return books, lua.State{}, err
	}
	state, err := s.cfg.State(ctx, id)
	if errors.Is(err, lua.ErrAbsent) || err == nil && (state.Status == models.StatusLoading || state.Status == models.StatusFenced) {
		if _, err = s.cfg.Hydrate(ctx, id); err == nil {
			state, err = s.cfg.State(ctx, id)
		}
	}
	return books, state, err
}

// stockOf: backlog is units that are in Redis and not yet in MySQL, but for those that are parked and never get there. At one
// watermark there is none, and what differs then is drift. MySQL ahead of Redis is no lag either: Redis has lost something.
func stockOf(books *models.Books, state *lua.State) models.Stock {
	st := models.Stock{
		CampaignID: state.Meta.ID, Total: state.Total, Remaining: state.Remaining(), Claimed: state.Taken, Synced: books.Claimed,
		AsOf: models.NewTime(state.AsOf),
	}
	st.Low = state.LowStockAt > 0 && st.Remaining <= state.LowStockAt
	st.Parked = books.ParkedUnits
	known := books.Claimed + books.ParkedUnits
	switch at := books.SyncedSeq + books.ParkedClaims; {
	case at < state.Seq:
		st.Backlog = max(0, state.Taken-known)
	case at > state.Seq || books.Released == state.Released: // a release on its way to Redis is a lag, too
		st.Drift = state.Drift(books)
	}
	return st
}

func (s *Routes) stockProblem(id string, err error) *wire.Problem {
	if errors.Is(err, models.ErrNotFound) {
		return &wire.Problem{Code: wire.CodeCampaignNotFound}
	}
	s.complain.Do(func() { s.log.Warn("stock not available", slog.String("campaign_id", id), slog.Any("error", err)) })
	return &wire.Problem{Code: wire.CodeUnavailable, Detail: "Redis' state or the books are not available now."}
}
