package e2e

import (
	"context"
	"sync"
	"time"

	"dibs/lua"
)

// dba looks at campaigns in MySQL again and again, as DBAs do, and holds each look against the one before and against Redis.
//
// What remains in Redis falls with every claim and rises only by a restock or by what is given back. So MySQL is read first:
// its figure of then is never below Redis' figure of then, which is never below Redis' figure of later, unless units were put
// in or given back in the meantime. Both go through MySQL before Redis hears of them: a restock by a new version, a unit given back
// by a row that is no claim any more. So MySQL is read once more after Redis: where version and live rows' losses are the same
// before and after, Redis works by nothing that the first look did not know. The other way round, Redis first, says nothing:
// MySQL may be lower a moment later and be right.
type dba struct {
	servers
	ids      []string
	restocks func() int64 // beginnings and ends, so far, of whatever may put units back; even: none is under way
	redis    bool         // Redis is to be trusted, so it is compared
	found    report
	looks    int
	compared int
	stop     func() []string
}

// glance is what MySQL shows of a campaign at one moment.
type glance struct {
	total, remaining, claimed, version, givenBack int64
	residency                                     string
	restocks                                      int64 // when it started
}

// watchBooks looks until stop is called, which returns what must never have been seen.
func watchBooks(s servers, ids []string, restocks func() int64, redisToo bool) *dba {
	d := &dba{servers: s, ids: ids, restocks: restocks, redis: redisToo}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { d.run(ctx) })
	d.stop = func() []string {
		cancel()
		wg.Wait()
		return d.found
	}
	return d
}

func (d *dba) run(ctx context.Context) {
	before := map[string]glance{}
	for ctx.Err() == nil {
		for _, id := range d.ids {
			d.lookAt(ctx, id, before)
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (d *dba) lookAt(ctx context.Context, id string, before map[string]glance) {
	now, err := d.glance(ctx, id)
	if err != nil {
		return // no one is shown anything
	}
	d.looks++
	if now.remaining < 0 {
		d.found.addf("%s: remaining was %d", id, now.remaining)
	}
	if past, seen := before[id]; seen && now.remaining > past.remaining && !d.mayHaveRisen(&past, &now) {
		d.found.addf("%s: remaining rose without a restock: %+v, then %+v", id, past, now)
	}
	before[id] = now
	if d.redis {
		d.compare(ctx, id, &now)
	}
}

// mayHaveRisen: units were put in or given back between two looks, or are being put in.
func (d *dba) mayHaveRisen(past, now *glance) bool {
	return now.total > past.total || now.givenBack != past.givenBack || past.restocks != d.restocks() || past.restocks%2 == 1
}

func (d *dba) compare(ctx context.Context, id string, first *glance) {
	state, err := d.scripts.State(ctx, id)
	if err != nil {
		return // it gives nothing away
	}
	again, err := d.glance(ctx, id)
	if err != nil || again.version != first.version || again.givenBack != first.givenBack {
		return
	}
	d.compared++
	if first.remaining < state.Remaining() {
		d.found.addf("%s: MySQL said %+v before Redis said that %d remain (version %d, epoch %d)", id, *first, state.Remaining(), state.Version, state.Epoch)
	}
}

func (d *dba) glance(ctx context.Context, id string) (g glance, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	g.restocks = d.restocks()
	err = d.db.QueryRowContext(ctx, "SELECT total, remaining, claimed, version, residency,"+
		" (SELECT COUNT(*) FROM claims WHERE claims.campaign_id = campaigns.id AND claims.status IN ('released', 'expired'))"+
		" FROM campaigns WHERE id = ?", id).Scan(&g.total, &g.remaining, &g.claimed, &g.version, &g.residency, &g.givenBack)
	return g, err
}

// keysOf names the keys of a campaign.
func (s *servers) keysOf(id string) lua.CampaignKeys { return s.scripts.KeysOf(id) }

// keysIn lists what Redis holds of a campaign.
func (s *servers) keysIn(ctx context.Context, id string) (all []string, err error) {
	k := s.keysOf(id)
	for iter := s.rdb.Scan(ctx, 0, k.State+"*", 1000).Iterator(); iter.Next(ctx); err = iter.Err() {
		if iter.Val() != k.State+":answers" { // for people who watch; they expire by themselves
			all = append(all, iter.Val())
		}
	}
	return all, err
}
