package torture

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"dibs/models"
)

// blur is how far a time with milliseconds may be off.
const blur = 2 * time.Millisecond

// row is a claim as MySQL has it.
type row struct {
	id, key, user string
	quantity, seq int64
	shard         int // from 1; 0 in a campaign of one shard
	status        models.ClaimStatus
	at            time.Time    // retime moves it
	redisAt       time.Time    // claimed_at, whatever the clock of Redis was then
	resolved      sql.NullTime // when it was redeemed, released or expired
	applied       time.Time    // when Redis had its units back, as the stream says; zero: it may not have them
	packet        sql.NullString
	amount        sql.NullInt64
}

// back reports whether its units were given back.
func (r *row) back() bool { return !r.status.Live() }

// mayHoldAfter reports whether its units may have counted at some time after from.
func (r *row) mayHoldAfter(from time.Time) bool {
	return !r.back() || r.applied.IsZero() || r.applied.After(from.Add(-blur))
}

// ledger is a campaign as MySQL has it.
type ledger struct {
	*campaign

	rows  []row // by shard and seq
	byKey map[string]*row
	byID  map[string]*row
}

// check compares all accounts of the round once everything is drained: the clients', MySQL's, the finance service's, and the readers'
// of the stream.
func (rd *round) check(ctx context.Context) error {
	streams, err := rd.readStreams(ctx)
	if err != nil {
		return err
	}
	for _, c := range rd.all() {
		l, err := rd.read(ctx, c, streams)
		if err != nil {
			return err
		}
		rd.report.Claims += int64(len(l.rows))
		rd.checkAnswers(l)
		rd.retime(l)
		rd.checkOrder(l)
		if err := rd.checkBooks(ctx, l); err != nil {
			return err
		}
		if c.packets {
			if err := rd.checkPackets(ctx, l); err != nil {
				return err
			}
		}
		if len(rd.losses) == 0 {
			if !rd.lied && !rd.vanished { // a refusal is judged by the times of claims, also of those that nobody was told of
				rd.checkRefusals(l)
			}
			rd.checkStream(l, streams)
			rd.checkLines(l, streams.crossed[l.id])
			if c.window {
				rd.checkWindow(c)
			}
		}
	}
	rd.checkWebhooks()
	rd.checkAvailability()
	rd.reconciled()
	return rd.checkAccounts(ctx)
}

// everyClaim is the claims of MySQL, with those that were archived.
const everyClaim = "(SELECT " + claimColumns + " FROM claims UNION ALL SELECT " + claimColumns + " FROM claims_archive)"

const claimColumns = "id, campaign_id, shard, seq, user_id, quantity, status, key_digest, packet_id, amount, claimed_at, resolved_at"

// read reads a campaign's rows.
func (rd *round) read(ctx context.Context, c *campaign, s *streams) (*ledger, error) {
	l := &ledger{campaign: c, byKey: map[string]*row{}, byID: map[string]*row{}}
	err := rd.w.each(ctx, `SELECT c.id, c.key_digest, c.user_id, c.quantity, c.seq, c.shard, c.status,
		c.claimed_at, c.resolved_at, c.packet_id, c.amount
		FROM `+everyClaim+` c WHERE c.campaign_id = ? ORDER BY c.shard, c.seq`, []any{c.id}, func(scan func(...any) error) error {
		var r row
		err := scan(&r.id, &r.key, &r.user, &r.quantity, &r.seq, &r.shard, &r.status, &r.at, &r.resolved, &r.packet, &r.amount)
		l.rows = append(l.rows, r)
		return err
	})
	for i := range l.rows {
		r := &l.rows[i]
		r.redisAt = r.at
		r.applied = s.released[r.id]
		if r.key == "" {
			r.key = r.user // who has no other claim
		}
		if twin := l.byKey[r.key]; twin != nil && !rd.excused(twin.at) { // else Redis lost it, MySQL did not, and the retry is another claim
			rd.brokenf("I4: one key has claims %s (seq %d) and %s (seq %d) of %s", twin.id, twin.seq, r.id, r.seq, c.id)
		}
		l.byKey[r.key] = r
		l.byID[r.id] = r
	}
	return l, err
}

// mark is how the row of a request is found: by the digest of its key, or by its user, who has no other.
func (one *request) mark() string {
	if one.key == "" {
		return one.user
	}
	sum := sha256.Sum256([]byte(one.user + "\x00" + one.key)) // a key is its user's
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// checkAnswers: a yes is a row, the same each time; a row is a yes, or someone's doubt (I2, I4).
func (rd *round) checkAnswers(l *ledger) {
	asked := map[string]bool{}
	lost := []*try(nil)
	for _, one := range l.requests {
		mark := one.mark()
		asked[mark] = true
		answered, unsure := rd.checkTries(one)
		made := l.byKey[mark]
		switch {
		case answered == nil && made == nil:
		case answered == nil && !unsure:
			rd.brokenf("I2: %s of %s was answered %s and has claim %s", one.user, l.id, one.last().code, made.id)
		case answered == nil:
		case made == nil || made.id != answered.claim.ID:
			rd.report.Answered++
			if !rd.excused(answered.ended) {
				rd.brokenf("I2: claim %s of %s, seq %d, was answered at %s and has no row (its key has %v)", answered.claim.ID, l.id, answered.claim.Seq,
					clock(answered.ended), made)
			}
			rd.report.Lost++
			lost = append(lost, answered)
		default:
			rd.report.Answered++
			rd.checkRow(l, one, answered, made)
		}
	}
	if len(lost) > 0 {
		first := lost[0].claim
		last := lost[len(lost)-1].claim
		rd.w.opt.Progress(fmt.Sprintf("round %d: %s: %d claims have no row, from seq %d at %s to seq %d at %s", rd.n, l.id, len(lost),
			first.Seq, clock(first.ClaimedAt.Time), last.Seq, clock(last.ClaimedAt.Time)))
	}
	for i := range l.rows {
		if !asked[l.rows[i].key] {
			rd.brokenf("I2: no one asked for claim %s of %s", l.rows[i].id, l.id)
		}
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// checkTries goes through the tries of one request: the claim it was answered last, and whether it may have one of which no answer came.
func (rd *round) checkTries(one *request) (answered *try, unsure bool) {
	for i := range one.tries {
		t := &one.tries[i]
		unsure = unsure || doubtful(t.code)
		switch {
		case t.claim == nil && answered != nil && certain(t.code) && !rd.excused(answered.ended) && (t.code != "closed" || !one.c.closing.Load()):
			rd.brokenf("I4: %s of %s was answered %s, then %s", one.user, one.c.id, answered.body, t.code)
		case t.claim == nil:
			continue
		case answered != nil && !rd.excused(answered.ended) && !t.repeats(answered):
			rd.brokenf("I4: %s of %s was answered %s, then (replayed %t) %s", one.user, one.c.id, answered.body, t.replayed, t.body)
		}
		if t.claim != nil {
			answered = t
		}
	}
	return answered, unsure
}

// repeats reports whether a claim is answered as it was before. An answer of a batch is spelled otherwise and not marked.
func (t *try) repeats(answered *try) bool {
	return t.claim.ID == answered.claim.ID && (t.batch != answered.batch || t.body == answered.body) && (t.batch || t.replayed)
}

// checkRow: the row says what the client was answered.
func (rd *round) checkRow(l *ledger, one *request, answered *try, made *row) {
	c := answered.claim
	if made.user != one.user || c.UserID != one.user || made.quantity != one.quantity || c.Quantity != one.quantity ||
		made.seq != c.Seq || !made.at.Equal(c.ClaimedAt.Time) || c.PacketID != made.packet.String {
		rd.brokenf("I2: claim %s of %s: %s wanted %d, was answered %+v, the row is %+v", c.ID, l.id, one.user, one.quantity, *c, *made)
	}
	if hold := one.c.hold; hold == 0 && c.ExpiresAt != nil || hold > 0 && (c.ExpiresAt == nil || !c.ExpiresAt.Equal(c.ClaimedAt.Add(hold))) {
		rd.brokenf("claim %s of %s expires at %v, of %s and a hold of %s", c.ID, l.id, c.ExpiresAt, c.ClaimedAt, hold)
	}
	if why := one.endsWrong(made.status, len(rd.losses) > 0); why != "" && !rd.undone() {
		rd.brokenf("claim %s of %s, a row with status %s: %s", c.ID, l.id, made.status, why)
	}
}

// endsWrong: a claim has one end, all answers say the same, and without a request it has none, or time's.
func (one *request) endsWrong(status models.ClaimStatus, lossy bool) string {
	holds := one.c.hold > 0
	may := map[models.ClaimStatus]bool{models.ClaimClaimed: true, models.ClaimExpired: holds}
	for _, e := range one.ends {
		switch {
		case e.code == "":
			may = map[models.ClaimStatus]bool{e.status: true, models.ClaimExpired: holds && e.status == models.ClaimReleased}
		case e.code == "already_released":
			may = map[models.ClaimStatus]bool{models.ClaimReleased: true, models.ClaimExpired: holds}
		case e.code == "already_redeemed":
			may = map[models.ClaimStatus]bool{models.ClaimRedeemed: true}
		case e.code == unreached:
		case !certain(e.code):
			if may[models.ClaimClaimed] {
				may[e.status] = true
			}
		case e.code == "claim_not_found" && (lossy || one.c.has(withArchive)):
		default:
			return fmt.Sprintf("%s was answered %s", e.status, e.code)
		}
	}
	if !may[status] {
		return fmt.Sprintf("was asked for %+v", one.ends)
	}
	return ""
}

// streams is what the claim streams say: the claims of each campaign and the lines that its stock crossed, and when Redis had the units
// of a released claim back.
type streams struct {
	accepted map[string][]models.Event
	crossed  map[string][]models.Event
	released map[string]time.Time
}

// readStreams is what the group that was away reads of the claim streams: all that were written since the last round.
func (rd *round) readStreams(ctx context.Context) (*streams, error) {
	all := &streams{accepted: map[string][]models.Event{}, crossed: map[string][]models.Event{}, released: map[string]time.Time{}}
	dropped := map[string]bool{} // nobody was told of these
	for p := range rd.w.partitions {
		events, err := rd.w.readAway(ctx, p)
		if err != nil && len(rd.losses) == 0 {
			return nil, fmt.Errorf("%w: I8: group %s: %w", errBroken, awayGroup, err)
		}
		for i := range events {
			switch e := &events[i].Event; e.Type {
			case models.EventClaimAccepted:
				all.accepted[e.CampaignID] = append(all.accepted[e.CampaignID], *e)
			case models.EventClaimsDropped:
				for _, id := range e.IDs {
					dropped[id] = true
				}
			case models.EventClaimReleased:
				all.released[e.ClaimID] = events[i].written
			case models.EventCampaignLowStock, models.EventCampaignSoldOut:
				all.crossed[e.CampaignID] = append(all.crossed[e.CampaignID], *e)
			default:
			}
		}
	}
	for id, accepted := range all.accepted {
		all.accepted[id] = slices.DeleteFunc(accepted, func(e models.Event) bool { return dropped[e.ID] })
	}
	return all, nil
}

// checkStream: a group that was away all the time finds every claim once (I2, I8).
func (rd *round) checkStream(l *ledger, s *streams) {
	events := slices.Clone(s.accepted[l.id])
	slices.SortFunc(events, func(a, b models.Event) int { return cmp.Or(a.Shard-b.Shard, int(a.Seq-b.Seq)) })
	if len(events) != len(l.rows) {
		rd.brokenf("I8: the stream holds %d claims of %s, MySQL %d", len(events), l.id, len(l.rows))
		return
	}
	for i := range events {
		e := &events[i]
		r := &l.rows[i]
		if e.ID != r.id || e.Shard != r.shard || e.Seq != r.seq || e.UserID != r.user || e.Quantity != r.quantity {
			rd.brokenf("I2: %s: the stream says %+v, the row %+v", l.id, *e, *r)
		}
	}
}
