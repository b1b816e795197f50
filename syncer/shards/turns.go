package shards

import (
	"context"
	"fmt"
	"sync"
)

// turns let one need of a campaign be served at a time in a process: two would call back what the other has just granted.
type turns struct {
	mu         sync.Mutex
	byCampaign map[string]*turn
}

type turn struct {
	free  chan struct{} // holds a token while nobody has the turn
	users int
}

// take waits for the turn of a campaign, and returns how to give it back.
func (t *turns) take(ctx context.Context, campaignID string) (give func(), err error) {
	one := t.join(campaignID)
	select {
	case <-one.free:
		return func() {
			one.free <- struct{}{}
			t.leave(campaignID)
		}, nil
	case <-ctx.Done():
		t.leave(campaignID)
		return nil, fmt.Errorf("shards: %s: %w", campaignID, context.Cause(ctx))
	}
}

func (t *turns) join(campaignID string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.byCampaign[campaignID]
	if one == nil {
		if t.byCampaign == nil {
			t.byCampaign = make(map[string]*turn)
		}
		one = &turn{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
		t.byCampaign[campaignID] = one
	}
	one.users++
	return one
}

func (t *turns) leave(campaignID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.byCampaign[campaignID]; one.users > 1 {
		one.users--
	} else {
		delete(t.byCampaign, campaignID)
	}
}
