package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

const (
	maxListsSought = 5000 // lists that earlier loads may have left and that are searched for; the latest loads first
	packetsAtOnce  = 500  // packets of one call
)

// PacketFigures are what the rows of packets add up to.
type PacketFigures struct {
	Packets int64 `json:"packets"`
	Owned   int64 `json:"owned"`
	Strays  int64 `json:"strays"` // claims whose packet is not theirs by its row
}

// countPackets counts the packets of a lot, and holds their owners against its claims if they may differ, or thorough.
func countPackets(ctx context.Context, tx *sqlstore.Tx, id string, claims int64, thorough bool) (*PacketFigures, error) {
	var p PacketFigures
	campaignID, shard := models.SplitShardID(id)
	waves, err := packetsByRelease(ctx, tx, id, "", nil)
	for _, w := range waves {
		p.Packets += w.packets
		p.Owned += w.owned
	}
	if err == nil && (thorough || p.Owned != claims) {
		err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM claims c LEFT JOIN packets p ON p.campaign_id = c.campaign_id AND p.id = c.packet_id"+
			" WHERE c.campaign_id = ? AND c.shard = ? AND (p.claim_id IS NULL OR p.claim_id <> c.id)", campaignID, shard).
			Scan(&p.Strays)
	}
	return &p, err
}

// packetSums are the packets of one time of release.
type packetSums struct{ packets, owned, free int64 }

// packetsByRelease adds up the packets of a lot for which a condition is true, by their time of release.
func packetsByRelease(ctx context.Context, q sqlstore.Querier, id, where string, args []any) (map[int64]packetSums, error) {
	sums := make(map[int64]packetSums)
	return sums, addPackets(ctx, q, sums, 1, id, where, args)
}

// addPackets adds the packets of a lot for which a condition is true to sums, or takes them off.
func addPackets(ctx context.Context, q sqlstore.Querier, sums map[int64]packetSums, sign int64, id, where string, args []any) error {
	campaignID, shard := models.SplitShardID(id)
	return sqlstore.ScanAll(ctx, q, "SELECT release_at, COUNT(*), COUNT(claim_id),"+
		" SUM(CASE WHEN claim_id IS NULL AND returned_at IS NULL THEN 1 ELSE 0 END) FROM packets"+
		" WHERE campaign_id = ? AND shard = ?"+where+" GROUP BY release_at", append([]any{campaignID, shard}, args...), func(scan func(...any) error) error {
		var release sql.NullTime
		var n packetSums
		err := scan(&release, &n.packets, &n.owned, &n.free)
		w := sums[campaigns.ReleaseMs(release)]
		sums[campaigns.ReleaseMs(release)] = packetSums{
			packets: w.packets + sign*n.packets, owned: w.owned + sign*n.owned, free: w.free + sign*n.free,
		}
		return err
	})
}

// owners compares the rows of packets with those of claims, within one snapshot.
func (a *attempt) owners() {
	p := a.snap.packets
	c := &a.snap.campaign
	if p == nil {
		return
	}
	if p.Strays > 0 {
		a.found.differf("%d claims have packets that are not theirs by the rows of packets", p.Strays)
	}
	if p.Packets != c.Total {
		a.found.differf("campaigns.total is %d, there are %d rows of packets", c.Total, p.Packets)
	}
	if more := p.Owned + p.Strays - a.snap.rows.Claims; more > 0 {
		a.found.differf("%d packets belong to claims that have no row", more)
	}
}

// packets compares the packets that no one took with the lists that Redis gives them away from, for each time of release, and
// finds lists that nothing names if it is to check that closely. All of it stands still as long as no claim is taken and no
// packet is pushed: report is for who made sure of that. What is left of a closed campaign is on its way back to the sender.
func (a *attempt) packets(ctx context.Context, state *lua.State) (report func(), err error) {
	if state.Meta.Kind != models.KindPacket || state.Status == models.StatusClosed {
		return func() {}, nil
	}
	found := waves{}
	found.rows, err = a.untaken(ctx, state)
	if err == nil {
		err = a.lists(ctx, state.Epoch, &found)
	}
	if err == nil && a.depth >= DepthUsers {
		err = a.forgotten(ctx, state.Epoch, &found)
	}
	return func() { found.report(&a.found) }, err
}

// waves are the packets of a campaign that can be taken, by time of release in milliseconds since 1970; 0 is at once.
type waves struct {
	rows  map[int64]int64 // that no one took
	lists map[int64]int64 // that Redis gives away

	names        map[string]bool // lists that are in use
	stray, older []string        // lists that are not: of the load in force, and of those before
}

func (w *waves) report(c *Comparison) {
	releases := maps.Clone(w.rows)
	maps.Copy(releases, w.lists)
	differ := 0
	for _, release := range slices.Sorted(maps.Keys(releases)) {
		if w.rows[release] == w.lists[release] {
			continue
		}
		differ++
		if differ <= maxUsersNamed {
			c.differInRedisf("redis has %d packets %s to give away, the rows are of %d", w.lists[release], waveName(release), w.rows[release])
		}
	}
	if more := differ - maxUsersNamed; more > 0 {
		c.differInRedisf("and %d more waves", more)
	}
	if len(w.stray) > 0 { // a rebuild makes them those of an earlier load
		c.differInRedisf("redis holds lists of packets that are in no wave: %s", joined(w.stray))
	}
	if len(w.older) > 0 {
		c.differf("redis holds lists of packets of earlier loads: %s", joined(w.older))
		c.forgotten = w.older
	}
}

func waveName(releaseMs int64) string {
	if releaseMs == 0 {
		return "without a time of release"
	}
	return "of " + time.UnixMilli(releaseMs).UTC().Format(time.RFC3339Nano)
}

// untaken counts the rows of packets of the lot that no one took, up to the position that Redis was notified of, by their time of release.
// Those of parked claims are taken.
func (a *attempt) untaken(ctx context.Context, state *lua.State) (map[int64]int64, error) {
	id := a.snap.campaign.ID
	const pushed = " AND position <= ?"
	sums, err := packetsByRelease(ctx, a.r.db.ConnPool, id, pushed, []any{state.Pushed})
	for chunk := range slices.Chunk(slices.Collect(maps.Keys(a.snap.parked.Packets())), packetsAtOnce) {
		if err == nil {
			err = addPackets(ctx, a.r.db.ConnPool, sums, -1, id, pushed+" AND id IN "+sqlstore.Marks(len(chunk)),
				append([]any{state.Pushed}, sqlstore.Args(chunk)...))
		}
	}
	counts := make(map[int64]int64)
	for release, n := range sums {
		if n.free != 0 {
			counts[release] = n.free
		}
	}
	return counts, err
}

// lists counts the packets that Redis holds of a load, as claim.lua finds them. Of what is not a list, or not one of this load, it
// counts none.
func (a *attempt) lists(ctx context.Context, epoch int64, w *waves) error {
	lists, err := a.r.scripts.PacketLists(ctx, a.snap.campaign.ID, epoch)
	w.lists = make(map[int64]int64)
	w.names = make(map[string]bool)
	for i := range lists {
		w.names[lists[i].Key] = true
		if lists[i].OfLoad {
			w.lists[lists[i].ReleaseMs] += lists[i].Packets
		}
	}
	return err
}

// forgotten finds lists of packets that Redis holds and that nothing names: what is left when waves was lost, and with it the way
// to them. It checks the names that loads and times of release make.
func (a *attempt) forgotten(ctx context.Context, epoch int64, w *waves) error {
	id := a.snap.campaign.ID
	keys := a.r.scripts.KeysOf(id)
	var releases []int64
	const query = "SELECT DISTINCT release_at FROM packet_batches WHERE campaign_id = ?"
	campaignID, _ := models.SplitShardID(id)
	err := sqlstore.ScanAll(ctx, a.r.db.ConnPool, query, []any{campaignID}, func(scan func(...any) error) error {
		var at sql.NullTime
		err := scan(&at)
		releases = append(releases, campaigns.ReleaseMs(at))
		return err
	})
	if err != nil {
		return err
	}
	unused := func(load int64) (names []string) {
		for _, release := range releases {
			if name := keys.Packets(load, release); !w.names[name] {
				names = append(names, name)
			}
		}
		return names
	}
	w.stray, err = a.r.scripts.HeldPacketLists(ctx, unused(epoch))
	if err != nil {
		return err
	}
	var older []string
	for load := epoch - 1; load > 0 && len(older) < maxListsSought; load-- {
		older = append(older, unused(load)...)
	}
	w.older, err = a.r.scripts.HeldPacketLists(ctx, older)
	return err
}

func joined(names []string) string {
	if more := len(names) - maxUsersNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxUsersNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// restoreOwners gives packets that claims have, and that are no one's by their own rows, to the users of these claims.
func (p *repair) restoreOwners(ctx context.Context) error {
	if p.done.Found.Packets == nil {
		return nil
	}
	for more := true; more; {
		err := p.change(ctx, func(tx *sqlstore.Tx, _ *models.Campaign) (*models.Repair, error) {
			rows, err := robbed(ctx, tx, p.id)
			more = len(rows) == packetsAtOnce
			if err != nil || len(rows) == 0 {
				return nil, err
			}
			if err := writer.OwnPackets(ctx, tx, rows); err != nil {
				return nil, err
			}
			return repairOf(p.id, RepairPackets, fmt.Sprintf("%d packets without the owners that claims say", len(rows)),
				fmt.Sprintf("with them, by %d rows of claims", len(rows)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// robbed are claims whose packets have no owner and did not go back.
func robbed(ctx context.Context, tx *sqlstore.Tx, id string) (claims []models.Event, err error) {
	campaignID, shard := models.SplitShardID(id)
	err = sqlstore.ScanAll(ctx, tx, "SELECT c.id, c.packet_id FROM claims c"+
		" JOIN packets p ON p.campaign_id = c.campaign_id AND p.id = c.packet_id"+
		" WHERE c.campaign_id = ? AND c.shard = ? AND p.claim_id IS NULL AND p.returned_at IS NULL AND p.amount = c.amount"+
		" ORDER BY c.id LIMIT ?", []any{campaignID, shard, packetsAtOnce}, func(scan func(...any) error) error {
		var e models.Event
		err := scan(&e.ID, &e.PacketID)
		claims = append(claims, e)
		return err
	})
	return claims, err
}
