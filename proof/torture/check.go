package torture

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dibs/internal/testkit/oracle"
	"dibs/models"
	"dibs/models/event"
)

// blur is the error of a time in milliseconds.
const blur = 2 * time.Millisecond

// row is a claim in MySQL with its true times, regardless of
// Redis' clock: retime corrects at and resolved.
type row struct {
	*oracle.Row

	at, resolved time.Time
	// when Redis had its units back, by the stream; zero: perhaps never
	applied time.Time
}

// back reports whether its units were returned.
func (r *row) back() bool { return !r.Status.Live() }

// mayHoldAfter reports whether its units may have counted at
// some time after from.
func (r *row) mayHoldAfter(from time.Time) bool {
	return !r.back() || r.applied.IsZero() || r.applied.After(from.Add(-blur))
}

type ledger struct {
	*campaign
	*oracle.Books

	rows []row // by shard and seq
}

// check compares, after the drain, all data of the round: the clients',
// MySQL's, the finance service's, and the stream readers'.
func (rd *round) check(ctx context.Context) error {
	streams, err := rd.readStreams(ctx)
	if err != nil {
		return err
	}
	for _, c := range rd.campaigns {
		l, err := rd.read(ctx, c, streams)
		if err != nil {
			return err
		}
		rd.report.Claims += int64(len(l.rows))
		rd.checkAnswers(l)
		rd.retime(l)
		rd.checkOrder(l)
		rd.checkBooks(l)
		if c.packets {
			money, err := l.Packets(ctx, rd.w.db, sender(c), c.closed, rd.brokenf)
			if err != nil {
				return wrap(err)
			}
			rd.report.Uncredited += money.Uncredited
			rd.report.Ghosts += money.Ghosts
		}
		if len(rd.losses) == 0 {
			// a refusal is judged by claims' times, also of claims without a
			// reply
			if !rd.lied && !rd.vanished {
				rd.checkRefusals(l)
			}
			rd.checkTimes(l)
			l.Stream(streams.accepted[c.id], rd.brokenf)
			rd.checkLines(l, streams.crossed[l.id])
		}
	}
	rd.checkWebhooks()
	rd.checkAvailability()
	rd.reconciled()
	return wrap(oracle.Accounts(ctx, rd.w.db, rd.brokenf))
}

func (rd *round) read(ctx context.Context, c *campaign, s *streams) (*ledger, error) {
	books, err := oracle.Read(ctx, rd.w.db, c.id)
	if err != nil {
		return nil, wrap(err)
	}
	books.Lossy = len(rd.losses) > 0
	l := &ledger{campaign: c, Books: books}
	byKey := map[string]*oracle.Row{}
	for i := range books.Rows {
		r := &books.Rows[i]
		l.rows = append(l.rows, row{Row: r, at: r.At, resolved: r.Resolved.Time, applied: s.released[r.ID]})
		// else Redis lost it, MySQL did not, and the retry is another claim
		if twin := byKey[r.Key]; twin != nil && !rd.excused(twin.At) {
			rd.brokenf("I4: one key has claims %s (seq %d) and %s (seq %d) of %s", twin.ID, twin.Seq, r.ID, r.Seq, c.id)
		}
		byKey[r.Key] = r
	}
	return l, nil
}

// checkAnswers checks that each grant has one row, the same at each reply,
// and each row has a grant or an unsure client (I2, I4).
func (rd *round) checkAnswers(l *ledger) {
	var all []oracle.Answer
	for _, one := range l.requests {
		answered, unsure := rd.checkTries(one)
		a := oracle.Answer{
			User: one.user, Mark: oracle.Mark(one.user, one.key), Quantity: one.quantity, Unsure: unsure, Refused: one.last().code,
		}
		if answered != nil {
			rd.report.Answered++
			a.Claim = answered.claim
			a.MayBeLost = rd.excused(answered.ended)
			rd.checkEnds(l, one, answered.claim)
		}
		all = append(all, a)
	}
	lost := l.Answers(all, rd.brokenf)
	rd.report.Lost += int64(len(lost))
	if len(lost) > 0 {
		first := lost[0].Claim
		last := lost[len(lost)-1].Claim
		rd.w.opt.Progress(fmt.Sprintf("round %d: %s: %d claims have no row, from seq %d at %s to seq %d at %s", rd.n, l.id, len(lost),
			first.Seq, clock(first.ClaimedAt.Time), last.Seq, clock(last.ClaimedAt.Time)))
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// checkTries checks one request's tries. It returns the last granted one, and
// whether an unanswered try may have been granted.
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

// repeats reports whether a claim is answered as before. A
// batch's reply is encoded differently and not marked.
func (t *try) repeats(answered *try) bool {
	return t.claim.ID == answered.claim.ID && (t.batch != answered.batch || t.body == answered.body) && (t.batch || t.replayed)
}

// checkEnds checks that the claim expires with its hold, and
// that its row has the right end.
func (rd *round) checkEnds(l *ledger, one *request, c *models.Claim) {
	made := l.ByID[c.ID]
	if made == nil {
		return
	}
	if hold := one.c.hold; hold == 0 && c.ExpiresAt != nil || hold > 0 && (c.ExpiresAt == nil || !c.ExpiresAt.Equal(c.ClaimedAt.Add(hold))) {
		rd.brokenf("claim %s of %s expires at %v, of %s and a hold of %s", c.ID, l.id, c.ExpiresAt, c.ClaimedAt, hold)
	}
	if why := one.endsWrong(made.Status, l.Lossy); why != "" && !rd.undone() {
		rd.brokenf("claim %s of %s, a row with status %s: %s", c.ID, l.id, made.Status, why)
	}
}

// endsWrong checks that a claim has one end and all replies
// agree. Without a request it has none, or expires.
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

// streams is the content of the claim streams: each campaign's claims and
// stock thresholds, and when Redis had a released claim's units back.
type streams struct {
	accepted map[string][]event.Event
	crossed  map[string][]event.Event
	released map[string]time.Time
}

// readStreams reads, as the paused group, all entries of the
// streams since the last round.
func (rd *round) readStreams(ctx context.Context) (*streams, error) {
	all := &streams{accepted: map[string][]event.Event{}, crossed: map[string][]event.Event{}, released: map[string]time.Time{}}
	dropped := map[string]bool{} // these were not answered
	for p := range rd.w.partitions {
		events, err := rd.w.readAway(ctx, p)
		if err != nil && len(rd.losses) == 0 {
			return nil, fmt.Errorf("%w: I8: group %s: %w", errBroken, awayGroup, err)
		}
		for i := range events {
			switch e := &events[i].Event; e.Type {
			case event.ClaimAccepted:
				all.accepted[e.CampaignID] = append(all.accepted[e.CampaignID], *e)
			case event.ClaimsDropped:
				for _, id := range e.IDs {
					dropped[id] = true
				}
			case event.ClaimReleased:
				all.released[e.ClaimID] = events[i].written
			case event.CampaignLowStock, event.CampaignSoldOut:
				all.crossed[e.CampaignID] = append(all.crossed[e.CampaignID], *e)
			default:
			}
		}
	}
	for id, accepted := range all.accepted {
		all.accepted[id] = slices.DeleteFunc(accepted, func(e event.Event) bool { return dropped[e.ID] })
	}
	return all, nil
}
