package shards

import (
	"context"
	"errors"

	"dibs/models"
)

// actor is a mover with a need.
type actor struct {
	w       *world
	mover   *Mover
	need    models.Need
	fewest  int64 // units that were free at a moment since it started
	resume  chan bool
	parked  chan struct{}
	refill  models.Refill
	err     error
	over    bool
	crashed bool
}

var errCrash = errors.New("the process died")

func (w *world) start(need models.Need) *actor {
	a := &actor{w: w, need: need, fewest: w.total - w.taken(), resume: make(chan bool), parked: make(chan struct{})}
	a.mover = &Mover{oneByOne: true, redis: a, loader: a}
	a.mover.find = func(context.Context, string, int) (*models.Campaign, error) {
		return &models.Campaign{ID: "c", Kind: models.KindCoupon, Shards: len(w.lots) - 1}, nil
	}
	a.mover.proof = a.mover.prove
	if w.flaw == flawSoldOutAtAGlance {
		a.mover.proof = func(ctx context.Context, p *snapshot) (models.Refill, error) {
			from := int64(1)
			for _, v := range a.Shards(ctx, p.campaign.LotIDs()) {
				from += v.Free()
			}
			return models.Refill{SoldOutFrom: from}, nil
		}
	}
	w.actors = append(w.actors, a)
	go func() {
		defer func() {
			if v := recover(); v != nil && !errors.Is(v.(error), errCrash) {
				panic(v)
			}
			a.over = true
			a.parked <- struct{}{}
		}()
		a.step()
		a.refill, a.err = a.mover.Refill(context.Background(), "c", need)
	}()
	<-a.parked
	return a
}

// step waits until the test lets the actor go on, or has it die.
func (a *actor) step() {
	a.parked <- struct{}{}
	if !<-a.resume {
		panic(errCrash)
	}
}

// goOn lets the actor take one step.
func (a *actor) goOn() {
	a.resume <- true
	<-a.parked
}

func (a *actor) crash() {
	a.crashed = true
	a.resume <- false
	<-a.parked
}
