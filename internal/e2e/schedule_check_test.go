package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/lua"
	"dibs/models"
)

// verdict is what became of a seed.
type verdict struct {
	wrong                    report
	claims, told, lost, lack int64 // rows; answered; answered and without a row; places known to be lost, by the books
	refused                  map[string]int
	epochs                   int64 // loads into Redis
	expired                  int64 // claims
}

// judge compares all accounts once everything is drained: the clients', Redis', MySQL's, and the readers' of the stream.
func (h *house) judge(ctx context.Context, within time.Duration) *verdict {
	v := &verdict{refused: map[string]int{}}
	if err := h.drain(ctx, within); err != nil {
		v.wrong.addf("not drained: %v", err)
	}
	audit := h.readAll(ctx, "audit", &v.wrong)
	for _, d := range h.dramas {
		rows, keys, err := h.rowsOf(ctx, d.ID)
		if err != nil {
			v.wrong.addf("%v", err)
			continue
		}
		v.claims += int64(len(rows))
		for _, row := range rows {
			if row.status == expired {
				v.expired++
			}
		}
		h.judgeAnswers(v, d, rows, keys)
		h.judgeBooks(ctx, v, d, rows)
		h.judgeExpiry(ctx, &v.wrong, d, rows)
		h.judgePackets(ctx, &v.wrong, d, rows)
		if h.plan.lossy {
			continue
		}
		m, err := h.newModel(ctx, d, rows, audit)
		if err != nil {
			v.wrong.addf("%v", err)
			continue
		}
		m.legal(&v.wrong)
		for _, a := range h.journal.all {
			for i := range a.tries {
				t := &a.tries[i]
				if a.drama != d || t.claim != nil || t.open() {
					continue
				}
				if why := m.refusal(a, t); why != "" {
					v.wrong.addf("%s of %s to %s, %s to %s: %s", t.code, d.ID, a.user, clock(t.begun), clock(t.ended), why)
				}
			}
		}
		h.judgeEvents(v, m, audit)
	}
	v.wrong = append(v.wrong, h.dba.stop()...)
	return v
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// drain waits until the consumers have nothing left, and MySQL all.
func (h *house) drain(ctx context.Context, within time.Duration) error {
	for deadline := time.Now().Add(within); ; time.Sleep(pollEvery) {
		err := h.drained(ctx)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (h *house) drained(ctx context.Context) error {
	var untold int64
	if err := h.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox WHERE applied_at IS NULL").Scan(&untold); err != nil || untold > 0 {
		return errors.Join(err, fmt.Errorf("redis was not told of %d decisions", untold))
	}
	for _, d := range h.dramas {
		b := books{servers: h.servers, campaign: d.campaign}
		unread, err := h.scripts.Unread(ctx, lua.PartitionOf(d.ID, h.partitions), models.GroupSyncer)
		if err != nil {
			return err
		}
		info, err := h.rdb.XInfoStream(ctx, b.stream()).Result()
		if err != nil && strings.Contains(err.Error(), "no such key") {
			continue // nothing was claimed in this partition
		}
		if err != nil {
			return err
		}
		tip, err := lua.ParseEntryID(info.LastGeneratedID)
		if err != nil || !unread.Upto(tip) {
			return errors.Join(err, fmt.Errorf("group syncer is at %v with %d pending, the stream at %v", unread.Delivered, unread.Pending, tip))
		}
	}
	return nil
}

// rowsOf are the rows of a campaign, and their ids by the digest of the key or else by the user.
func (h *house) rowsOf(ctx context.Context, id string) (rows map[string]book, keys map[string][]string, err error) {
	if rows, err = readRows(ctx, h.db, id); err != nil {
		return nil, nil, err
	}
	found, err := h.db.QueryContext(ctx, "SELECT id, key_digest FROM claims WHERE campaign_id = ?", id)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = found.Close() }()
	keys = map[string][]string{}
	for found.Next() {
		var claim, digest string
		if err := found.Scan(&claim, &digest); err != nil {
			return nil, nil, err
		}
		if digest == "" {
			digest = rows[claim].user
		}
		keys[digest] = append(keys[digest], claim)
	}
	return rows, keys, found.Err()
}

// mark is where the row of a claim is found: the digest of its key, as events carry it, or its user, who has no other.
func (a *asked) mark() string {
	if a.key == "" {
		return a.user
	}
	sum := sha256.Sum256([]byte(a.key))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// judgeAnswers: a yes is a row, the same each time; a row is a yes, or somebody's doubt.
func (h *house) judgeAnswers(v *verdict, d *drama, rows map[string]book, keys map[string][]string) {
	known := map[string]bool{}
	for _, a := range h.journal.all {
		if a.drama != d {
			continue
		}
		made := keys[a.mark()]
		known[a.mark()] = true
		if len(made) > 1 {
			v.wrong.addf("%s wanted one claim and has %d", a.user, len(made))
		}
		told, doubtful, first := h.judgeTries(v, a)
		switch {
		case told == nil && len(made) > 0 && !doubtful:
			v.wrong.addf("%s was told no (%s) and has claim %s", a.user, a.last().code, made[0])
		case told == nil:
		case len(made) == 0:
			v.lost++
			if !h.plan.lossy {
				v.wrong.addf("claim %s of %s was answered at %s and has no row: %s", told.ID, a.user, clock(first.ended), first.body)
			}
		case !slices.Contains(made, told.ID) && !h.plan.lossy:
			v.wrong.addf("%s was told of claim %s and has %v", a.user, told.ID, made)
		case slices.Contains(made, told.ID):
			row, want := rows[told.ID], book{told.UserID, told.Quantity, told.Seq, rows[told.ID].status, told.ClaimedAt.Time}
			a.judgeEndings(&v.wrong, row.status, h.plan.lossy)
			if why := d.heldWrong(told); why != "" {
				v.wrong.addf("claim %s: %s", told.ID, why)
			}
			if !row.at.Equal(want.at) || row.user != want.user || row.quantity != want.quantity || !h.plan.lossy && row.seq != want.seq || row.status != want.status ||
				told.UserID != a.user || told.Quantity != a.quantity {
				v.wrong.addf("claim %s: the answer was %+v, the row is %+v", told.ID, *told, row)
			}
		}
	}
	for mark, made := range keys {
		if !known[mark] {
			v.wrong.addf("nobody asked for claims %v", made)
		}
	}
}

// judgeTries goes through the tries of one wish: which claim it was told of last, and whether it may have one untold.
func (h *house) judgeTries(v *verdict, a *asked) (told *models.Claim, doubtful bool, first *try) {
	for i := range a.tries {
		t := &a.tries[i]
		v.refused[t.code]++
		doubtful = doubtful || t.doubtful()
		switch {
		case t.claim != nil && told == nil:
			told, first = t.claim, t
		case t.claim != nil && !h.plan.lossy && (t.claim.ID != told.ID || t.batch == first.batch && t.body != first.body || !t.batch && !t.replayed):
			v.wrong.addf("%s was told %s, then (replayed %t) %s", a.user, first.body, t.replayed, t.body)
		case t.claim != nil:
			told, first = t.claim, t // lost in between, and made anew
		case told != nil && !t.open() && !h.plan.lossy:
			v.wrong.addf("%s was told %s, then %s", a.user, first.body, t.code)
		}
	}
	if told != nil {
		v.told++
	}
	return told, doubtful, first
}

// judgeBooks: rows, counters, flushes and Redis say the same, nothing is oversold and nothing left over.
func (h *house) judgeBooks(ctx context.Context, v *verdict, d *drama, rows map[string]book) {
	var c models.Campaign
	var flushed, parked int64
	err := errors.Join(
		h.db.QueryRowContext(ctx, "SELECT total, claimed, remaining, synced_seq, lost_claims, epoch, residency FROM campaigns WHERE id = ?", d.ID).
			Scan(&c.Total, &c.Claimed, &c.Remaining, &c.SyncedSeq, &c.LostClaims, &c.Epoch, &c.Residency),
		h.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(units), 0) FROM stock_flushes WHERE campaign_id = ?", d.ID).Scan(&flushed),
		h.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM parked_events WHERE campaign_id = ? AND discarded_at IS NULL", d.ID).Scan(&parked),
	)
	if err != nil {
		v.wrong.addf("%s: %v", d.ID, err)
		return
	}
	r, units, total := &v.wrong, unitsOf(rows)-releasedOf(rows), d.totalNow()
	v.lack += c.LostClaims
	v.epochs += c.Epoch
	if units < total && !h.plan.control {
		r.addf("%s: %d of %d were sold, and more was wanted", d.ID, units, total)
	}
	if most := d.most("total"); units > most {
		r.addf("%s: oversold: %d units, total was %d at most", d.ID, units, most)
	}
	r.equal(d.ID+": total in MySQL, total", c.Total, total)
	r.equal(d.ID+": claimed in MySQL, units of the rows", c.Claimed, units)
	r.equal(d.ID+": remaining in MySQL, total less units", c.Remaining, max(0, total-units))
	r.equal(d.ID+": synced_seq, rows and lost claims", c.SyncedSeq, int64(len(rows))+c.LostClaims)
	r.equal(d.ID+": parked events, none", parked, 0)
	if !h.plan.lossy {
		r.equal(d.ID+": lost claims, none", c.LostClaims, 0)
		r.equal(d.ID+": units of stock_flushes, of the rows", flushed, unitsOf(rows))
		books{}.sequence(r, rows)
	}
	overLimit(r, d.ID+" per_user", usersOf(rows), d.most("per_user"))
	h.judgeRedis(ctx, r, d, &c)
}

func usersOf(rows map[string]book) map[string]int64 {
	all := map[string]int64{}
	for _, row := range rows {
		if !back(row.status) {
			all[row.user] += row.quantity
		}
	}
	return all
}

// most is the highest value that a field ever had; 0, which is no limit, if that is among them.
func (d *drama) most(field string) (most int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.spells[field] {
		if s.value == 0 {
			return 0
		}
		most = max(most, s.value)
	}
	return most
}

// judgeRedis: the campaign is there as MySQL says, or has left without a trace.
func (h *house) judgeRedis(ctx context.Context, r *report, d *drama, c *models.Campaign) {
	state, err := h.scripts.State(ctx, d.ID)
	if errors.Is(err, lua.ErrAbsent) {
		var residency models.Residency
		for deadline := time.Now().Add(drainWithin); residency != models.ResidencyEvicted && time.Now().Before(deadline); time.Sleep(pollEvery) {
			err = h.db.QueryRowContext(ctx, "SELECT residency FROM campaigns WHERE id = ?", d.ID).Scan(&residency) // it hears of it after Redis
		}
		if residency != models.ResidencyEvicted {
			r.addf("%s: Redis does not hold it, MySQL says it is %s: %v", d.ID, residency, err)
		}
		return
	}
	if err != nil {
		r.addf("%v", err)
		return
	}
	r.equal(d.ID+": taken in Redis, claimed in MySQL", state.Taken, c.Claimed)
	r.equal(d.ID+": seq in Redis, synced_seq", state.Seq, c.SyncedSeq)
	r.equal(d.ID+": total in Redis, in MySQL", state.Total, c.Total)
}

// readAll reads what a group that was away has not read yet.
func (h *house) readAll(ctx context.Context, group string, r *report) (events []heard) {
	for p := range h.partitions {
		for {
			read, err := h.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: group, Consumer: "one", Streams: []string{lua.StreamKey(p), ">"}, Count: 1000, Block: -1, NoAck: true,
			}).Result()
			if err != nil {
				if !errors.Is(err, redis.Nil) && !h.plan.lossy {
					r.addf("group %s: %v", group, err)
				}
				break
			}
			for _, entry := range read[0].Messages {
				payload, _ := entry.Values["payload"].(string)
				e, err := models.DecodeEvent([]byte(payload))
				if err != nil {
					r.addf("entry %s: %v", entry.ID, err)
				}
				id, err := lua.ParseEntryID(entry.ID)
				if err != nil {
					r.addf("entry %s: %v", entry.ID, err)
				}
				events = append(events, heard{e, time.UnixMilli(int64(id.Ms))})
			}
		}
	}
	return events
}

// judgeEvents: a group that was away all the time finds every claim, and each crossing told once.
func (h *house) judgeEvents(v *verdict, m *model, audit []heard) {
	live, faults := h.finance.of(m.d.ID)
	for _, fault := range faults {
		v.wrong.addf("finance: %s", fault)
	}
	seen, crossed := map[string]bool{}, map[string][]models.Event{}
	for i := range audit {
		e := &audit[i].Event
		switch {
		case e.CampaignID != m.d.ID:
		case e.Type == models.EventClaimAccepted && seen[e.ID]:
			v.wrong.addf("claim %s is twice in the stream", e.ID)
		case e.Type == models.EventClaimAccepted:
			seen[e.ID] = true
		default:
			crossed[string(e.Type)] = append(crossed[string(e.Type)], *e)
		}
	}
	v.wrong.equal(m.d.ID+": claims that the group which was away read, rows", int64(len(seen)), int64(len(m.rows)))
	v.wrong.equal(m.d.ID+": claims that finance read, rows", int64(len(live)), int64(len(m.rows)))
	for i := range m.rows {
		row := &m.rows[i]
		if e, read := live[row.id]; !seen[row.id] || !read || e.UserID != row.user || e.Quantity != row.quantity || e.Seq != row.seq || !e.At.Equal(row.at) {
			v.wrong.addf("claim %s: the row says %+v, the stream %+v", row.id, row.book, e)
		}
	}
	m.soldOutOnce(&v.wrong, crossed[string(models.EventCampaignSoldOut)])
	m.noCrossingTwice(&v.wrong, slices.Concat(crossed[string(models.EventCampaignSoldOut)], crossed[string(models.EventCampaignLowStock)]))
	m.releasedOnce(&v.wrong, crossed[string(models.EventClaimReleased)])
}

// noCrossingTwice: what a claim crosses is told in the step that claims, so once. What a change crosses may be told again by whoever
// completes it, under the same id, and there are no more of these than changes.
func (m *model) noCrossingTwice(r *report, told []models.Event) {
	claims, changes := map[string]bool{}, map[string]bool{}
	for i := range m.rows {
		claims[m.rows[i].id] = true
	}
	seen := map[string]bool{}
	for i := range told {
		by, _, _ := strings.Cut(told[i].ID, ":")
		if claims[by] && seen[told[i].ID] {
			r.addf("%s: %+v is told twice", m.d.ID, told[i])
		}
		if seen[told[i].ID] = true; !claims[by] {
			changes[by] = true
		}
	}
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if made := len(m.d.spells["total"]) + len(m.d.spells["low_stock_at"]); len(changes) > made {
		r.addf("%s: %d changes crossed a line, %d were made", m.d.ID, len(changes), made)
	}
}

// soldOutOnce: the claim that took the last unit is followed by one word of it, and no other is.
func (m *model) soldOutOnce(r *report, told []models.Event) {
	at := map[int64]int{}
	for i := range told {
		claim, _, _ := strings.Cut(told[i].ID, ":")
		if !slices.ContainsFunc(m.rows, func(row modelRow) bool { return row.id == claim }) {
			continue // a total that was lowered, see noCrossingTwice
		}
		at[told[i].Seq]++
		if at[told[i].Seq] > 1 {
			r.addf("%s: sold out is told twice at seq %d", m.d.ID, told[i].Seq)
		}
	}
	for i := range m.rows {
		row := &m.rows[i]
		if m.back > 0 {
			return // what was taken when is known only roughly then
		}
		totals := m.may("total", row.at, row.at.Add(time.Millisecond))
		could, must := slices.Contains(totals, row.taken), len(slices.Compact(slices.Sorted(slices.Values(totals)))) == 1 && totals[0] == row.taken
		if must && at[row.seq] == 0 || !could && at[row.seq] > 0 {
			r.addf("%s: seq %d, %d taken of %v: sold out is told %d times", m.d.ID, row.seq, row.taken, totals, at[row.seq])
		}
	}
}
