package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/reconcile"

	"github.com/stretchr/testify/require"
)

// drawnSale is a campaign of packets in two to four shards, with which a seed does what it draws.
type drawnSale struct {
	*sale
	r           *rand.Rand
	shards      int
	total, sold int      // packets
	did         []string // what is printed if the test fails
}

func (d *drawnSale) logf(format string, args ...any) {
	d.did = append(d.did, fmt.Sprintf(format, args...))
}

// lot draws a lot of the campaign.
func (d *drawnSale) lot() int { return append(d.all(), models.ReserveLot)[d.r.IntN(d.shards+1)] }

// all are the shards.
func (d *drawnSale) all() (shards []int) {
	for shard := range d.shards {
		shards = append(shards, shard+1)
	}
	return shards
}

// sellOut has users of all shards take what is left.
func (d *drawnSale) sellOut() (got int) {
	d.T.Helper()
	empty := 0
	for round := 0; empty < d.shards; round++ {
		require.Less(d.T, round, 100)
		shard := 1 + round%d.shards
		done := d.refill(shard, 1)
		n := d.take(shard, 70)
		if got += n; done && n == 0 {
			empty++
		} else {
			empty = 0
		}
	}
	return got
}

// step does one thing that goes on in a healthy campaign. Whatever is refused is left undone.
func (d *drawnSale) step() {
	d.T.Helper()
	ctx := d.T.Context()
	lot := d.lot()
	id := models.ShardID(d.id, lot)
	shard := 1 + d.r.IntN(d.shards)
	switch d.r.IntN(9) {
	case 0, 1, 2:
		n := 1 + d.r.IntN(12)
		_, err := d.mover.Refill(ctx, d.id, models.Need{Shard: shard, Units: int64(n)})
		d.logf("refill %d by %d: %v", shard, n, err)
	case 3, 4, 5:
		n := 1 + d.r.IntN(6)
		got := d.take(shard, n)
		d.sold += got
		d.logf("%d of %d users get a packet of shard %d", got, n, shard)
	case 6, 8:
		c := d.Campaign(id)
		evicted, err := d.Scripts.Evict(ctx, &c, 0)
		d.logf("evict %d: %v %v", lot, evicted, err)
	case 7:
		d.logf("load %d: %v", lot, d.Hydrate(id))
	}
}

// lose has Redis lose all of a lot, its packets too.
func (d *drawnSale) lose(lot int) {
	d.T.Helper()
	d.Lose(models.ShardID(d.id, lot), func(k lua.CampaignKeys) []string {
		lists, err := d.Redis.Keys(d.T.Context(), k.State+":*").Result()
		require.NoError(d.T, err)
		return append(lists, k.State, k.Users, k.Keys, k.Waves)
	})
}

func (d *drawnSale) steps(n int) {
	d.T.Helper()
	for range n {
		d.step()
		d.Sync()
	}
}

// lead does what the syncer that leads does in a round. What can't be loaded yet is left out.
func (d *drawnSale) lead() {
	d.T.Helper()
	ctx := d.T.Context()
	look(d.Stack)
	_, err := d.mover.Check(ctx)
	d.logf("check: %v", err)
	d.Sync()
	_, err = d.Maintainer().Attend(ctx, true)
	d.logf("attend: %v", err)
	_, err = d.reconciler.Reconcile(ctx)
	d.logf("reconcile: %v", err)
}

// state logs what is known of the lots.
func (d *drawnSale) state(when string) {
	d.T.Helper()
	ids := []string{}
	for _, s := range append(d.all(), models.ReserveLot) {
		ids = append(ids, models.ShardID(d.id, s))
	}
	d.logf("--- %s", when)
	for i, v := range d.Scripts.Shards(d.T.Context(), ids) {
		c := d.Campaign(ids[i])
		d.logf("  %s redis: %s load %d total %d in %v out %v %v; mysql: %s load %d total %d tseq %d", ids[i][len(ids[i])-3:],
			v.Status, v.Epoch, v.Total, v.In, v.Out, v.Err, c.Residency, c.Epoch, c.Total, c.TSeq)
	}
	var rows []struct {
		Shard, Peer, Units, Cumulative, Epoch int
		Kind, Packets                         string
	}
	require.NoError(d.T, d.DB.Raw("SELECT shard, peer, kind, units, cumulative, epoch, COALESCE(packets, '') AS packets FROM stock_moves"+
		" WHERE campaign_id = ? ORDER BY shard, tseq", d.id).Scan(&rows).Error)
	for _, r := range rows {
		d.logf("  row of %d: %s peer %d units %d cumulative %d load %d %s", r.Shard, r.Kind, r.Peer, r.Units, r.Cumulative, r.Epoch, r.Packets)
	}
}

// disaster has MySQL, Redis, or both, lose something, and repairs the campaign. A repair that gives nothing up may refuse.
func (d *drawnSale) disaster() {
	d.T.Helper()
	d.steps(d.r.IntN(6))
	require.Zero(d.T, look(d.Stack))
	withheld := d.withheldIDs()
	restore := putBack(d.Stack)
	d.logf("dump")
	d.state("dump")
	isRestored := d.r.IntN(4) > 0
	before := d.total
	isAdded := d.r.IntN(2) == 0
	batch := syncertest.ListOf(fmt.Sprintf("q%d-", before), 20)
	d.steps(1 + d.r.IntN(6))
	if isAdded {
		d.AddPackets(d.id, batch)
		d.total += 20
		d.logf("add packets")
	}
	d.steps(1 + d.r.IntN(8))
	for range max(0, d.r.IntN(5)-2) {
		lot := d.lot()
		d.lose(lot)
		d.logf("lose %d", lot)
	}
	if isRestored {
		restore()
		d.logf("restore")
		d.state("restored")
		d.Exec("DELETE FROM packet_batches WHERE first_position > ?", before)
	}
	wait := d.r.IntN(3)
	for round := range 4 {
		if isAdded && isRestored && round == wait {
			d.AddPackets(d.id, batch)
			d.logf("add packets again")
		}
		d.lead()
		d.logf("maintain: %v", d.maintainer.Maintain(d.T.Context(), true))
		d.steps(d.r.IntN(4))
	}
	d.state("before repair")
	done, err := d.Reconciler().Repair(d.T.Context(), d.id, reconcile.RepairHow{})
	d.logf("repair: %v %v %v", done.Steps, done.Left.Differences, err)
	lots := d.inLots()
	for id := range d.withheldIDs() {
		require.True(d.T, withheld[id] || lots[id], "%s is withheld unasked", id)
	}
	d.steps(d.r.IntN(3))
	done, err = d.Reconciler().Repair(d.T.Context(), d.id, reconcile.RepairHow{GiveUpClaims: true})
	d.logf("repair with --give-up-claims: %v", done.Steps)
	d.state("after repair")
	require.NoError(d.T, err)
	require.Empty(d.T, done.Left.Differences)
	require.Empty(d.T, done.GivenUp)
	require.GreaterOrEqual(d.T, d.withheld(), 0)
}

// withheld is how many packets no lot gives away.
func (d *drawnSale) withheld() (n int) {
	d.T.Helper()
	require.NoError(d.T, d.DB.Raw("SELECT COALESCE(SUM(CASE WHEN kind = ? THEN units ELSE -units END), 0) FROM stock_moves"+
		" WHERE campaign_id = ? AND peer = 0", models.EventUnitsDebited, d.id).Row().Scan(&n))
	return n
}

// withheldIDs are the packets that no lot gives away, by the rows of the lots.
func (d *drawnSale) withheldIDs() map[string]bool {
	d.T.Helper()
	times := make(map[string]int)
	for _, lot := range append(d.all(), models.ReserveLot) {
		rows, err := campaigns.ReadTransfers(d.T.Context(), d.DB.ConnPool, models.ShardID(d.id, lot))
		require.NoError(d.T, err)
		for _, id := range campaigns.PacketsOf(rows, models.EventUnitsDebited, 0) {
			times[id]++
		}
		for _, id := range campaigns.PacketsOf(rows, models.EventUnitsCredited, 0) {
			times[id]--
		}
	}
	withheld := make(map[string]bool)
	for id, n := range times {
		if n > 0 {
			withheld[id] = true
		}
	}
	return withheld
}

// inLots are the packets that users have, that Redis has in a list, or that it has debited.
func (d *drawnSale) inLots() map[string]bool {
	d.T.Helper()
	ctx := d.T.Context()
	in := make(map[string]bool)
	add := func(ids []string, err error) {
		require.NoError(d.T, err)
		for _, id := range ids {
			in[id[strings.LastIndexByte(id, ':')+1:]] = true
		}
	}
	lots := append(d.all(), models.ReserveLot)
	for _, lot := range lots {
		id := models.ShardID(d.id, lot)
		v := d.Scripts.Shards(ctx, []string{id})[0]
		if v.Err != nil { // it is not in Redis, whose lists and records are none then
			continue
		}
		add(d.Scripts.PacketNames(ctx, id, v.Epoch))
		for _, peer := range lots {
			add(d.Scripts.Debited(ctx, id, v.Epoch, peer, 0))
		}
		require.NoError(d.T, d.Scripts.ScanClaimRecords(ctx, id, func(page []lua.RecordedClaim) error {
			for i := range page {
				in[page[i].PacketID] = true
			}
			return nil
		}))
	}
	var owned []string
	require.NoError(d.T, d.DB.Raw("SELECT packet_id FROM claims WHERE campaign_id = ?", d.id).Scan(&owned).Error)
	add(owned, nil)
	return in
}

// MySQL is restored to a time before lots of packets did what a seed draws: they gave each other packets, were evicted and loaded, users took
// packets, and the sender added some. Redis may lose a lot, too. Whatever a repair can't tell it refuses, and --give-up-claims withholds; then
// the books agree, no packet has two owners, and all that are not withheld are given away.
func TestRestored_PacketsOfDrawnSchedulesHaveOneOwner(t *testing.T) {
	t.Parallel()
	seeds := []uint64{234, 264, 292, 313, 458} // that found something
	for seed := range uint64(testenv.Pick(4, 400)) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			d := &drawnSale{r: rand.New(rand.NewPCG(seed, 1)), total: 40}
			d.shards = 2 + d.r.IntN(3)
			d.sale = newSale(t, true, d.shards)
			defer func() {
				if t.Failed() {
					t.Log(strings.Join(d.did, "\n"))
				}
			}()
			for _, shard := range d.all() {
				d.refill(shard, 3)
			}
			for range 1 + d.r.IntN(3) {
				d.disaster()
			}
			for range 2 {
				d.leader()
				d.sold += d.sellOut()
			}
			packets, owned := d.owners()
			require.Equal(t, []int{d.sold, d.sold}, []int{packets, owned}, "one owner each")
			require.GreaterOrEqual(t, d.withheld(), 0)
			require.Equal(t, d.total, d.sold+d.withheld(), "given away, or withheld")
			require.Empty(t, syncertest.ParkedIDs(t, d.DB))
			require.Empty(t, d.Compare(d.id).Differences)
			for _, lot := range append([]int{models.ReserveLot}, d.all()...) {
				d.Reload(models.ShardID(d.id, lot))
			}
			require.Zero(t, d.sellOut())
			require.Empty(t, d.Compare(d.id).Differences)
		})
	}
}
