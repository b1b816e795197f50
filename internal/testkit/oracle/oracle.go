// Package oracle compares callers' answers with Redis and MySQL. It is used
// by `dibs torture`, by the whole-pipeline tests and by the writer's. Only
// torture knows what was possible at which time, and checks that itself.
package oracle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

// Querier is a database, of any package.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Report is called for each violated invariant.
type Report func(format string, args ...any)

// Equal reports two figures that differ.
func (r Report) Equal(invariant, of, what string, a, b int64) {
	if a != b {
		r("%s: %s: %s: %d and %d", invariant, of, what, a, b)
	}
}

// Row is a claim in MySQL's claims or claims_archive.
type Row struct {
	ID, Key, User string // Key is a Mark
	Quantity, Seq int64
	Shard         int // from 1; 0 in a campaign of one shard
	Status        models.ClaimStatus
	At            time.Time
	Resolved      sql.NullTime // time of redemption, release or expiry
	Packet        sql.NullString
	Amount        sql.NullInt64
}

// Books are a campaign's rows and counters in MySQL.
type Books struct {
	ID    string
	Lossy bool  // Redis or MySQL lost data: the losses that this explains are not reported
	Rows  []Row // by shard and seq
	ByID  map[string]*Row

	Total, Claimed, Remaining, Synced, Lost, LostUnits, GivenUp int64 // from campaigns and lots
	FlushedUnits, FlushedClaims, Parked                         int64
	Live, Ever                                                  int64 // units of the rows
}

// Read reads a campaign's rows and counters.
func Read(ctx context.Context, db Querier, id string) (*Books, error) {
	b := &Books{ID: id, ByID: map[string]*Row{}}
	err := db.QueryRowContext(ctx, `SELECT c.total, c.claimed, c.remaining, c.synced_seq, c.lost_claims, c.lost_units,
		(SELECT COALESCE(SUM(given_up_claims), 0) FROM lots WHERE campaign_id = c.id),
		(SELECT COUNT(*) FROM parked_events WHERE (campaign_id = c.id OR campaign_id LIKE ?) AND discarded_at IS NULL),
		f.units, f.claims FROM campaigns c,
		(SELECT COALESCE(SUM(units), 0) AS units, COALESCE(SUM(claims), 0) AS claims FROM stock_flushes WHERE campaign_id = ?) f
		WHERE c.id = ?`, id+"#%", id, id).
		Scan(&b.Total, &b.Claimed, &b.Remaining, &b.Synced, &b.Lost, &b.LostUnits, &b.GivenUp, &b.Parked,
			&b.FlushedUnits, &b.FlushedClaims)
	for _, table := range []string{"claims", "claims_archive"} {
		if err == nil {
			err = b.readRows(ctx, db, table)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("oracle: %s: %w", id, err)
	}
	slices.SortFunc(b.Rows, func(a, b Row) int { return cmp.Or(a.Shard-b.Shard, cmp.Compare(a.Seq, b.Seq)) })
	for i := range b.Rows {
		r := &b.Rows[i]
		b.ByID[r.ID] = r
		b.Ever += r.Quantity
		if r.Status.Live() {
			b.Live += r.Quantity
		}
	}
	return b, nil
}

func (b *Books) readRows(ctx context.Context, db Querier, table string) error {
	rows, err := db.QueryContext(ctx, `SELECT id, key_digest, user_id, quantity, seq, shard, status, claimed_at, resolved_at,
		packet_id, amount FROM `+table+` WHERE campaign_id = ?`, b.ID)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r Row
		err := rows.Scan(&r.ID, &r.Key, &r.User, &r.Quantity, &r.Seq, &r.Shard, &r.Status, &r.At, &r.Resolved,
			&r.Packet, &r.Amount)
		if err != nil {
			return err
		}
		r.Key = cmp.Or(r.Key, r.User)
		b.Rows = append(b.Rows, r)
	}
	return rows.Err()
}

// Mark identifies a request's row: by the digest of its key, or
// by its user, who then has no other.
func Mark(user, key string) string {
	if key == "" {
		return user
	}
	sum := sha256.Sum256([]byte(user + "\x00" + key)) // a key belongs to its user
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Answer is the outcome of a claim, as known by its caller.
type Answer struct {
	User, Mark string // see Mark; if "", the claim's id is used
	Quantity   int64
	Claim      *models.Claim // nil: not granted
	Unsure     bool          // it may have been granted all the same
	Refused    string        // reason of the refusal
	MayBeLost  bool          // answered while answers could be lost
}

// Answers checks I2: each grant has a row with the same values,
// and each row has a grant or an unsure caller. It returns the
// answers whose claims are lost.
func (b *Books) Answers(all []Answer, wrong Report) (lost []Answer) {
	byMark := map[string]*Row{}
	for i := range b.Rows {
		byMark[b.Rows[i].Key] = &b.Rows[i]
	}
	asked := map[string]bool{}
	granted := map[string]bool{} // by id
	for _, a := range all {
		asked[a.Mark] = true
		made := byMark[a.Mark]
		switch {
		case a.Claim == nil && made == nil:
		case a.Claim == nil && !a.Unsure:
			wrong("I2: %s of %s was answered %s and has claim %s", a.User, b.ID, a.Refused, made.ID)
		case a.Claim == nil && made.Quantity != a.Quantity:
			wrong("I2: claim %s of %s is of %d, the user asked for %d", made.ID, b.ID, made.Quantity, a.Quantity)
		case a.Claim == nil:
		case b.ByID[a.Claim.ID] == nil:
			lost = append(lost, a)
			if !a.MayBeLost {
				wrong("I2: claim %s of %s, seq %d, was answered and has no row (its key has %v)",
					a.Claim.ID, b.ID, a.Claim.Seq, made)
			}
		default:
			b.answer(&a, granted, wrong)
		}
	}
	for i := range b.Rows {
		if r := &b.Rows[i]; !asked[r.Key] && !granted[r.ID] {
			wrong("I2: no one asked for claim %s of %s, seq %d", r.ID, b.ID, r.Seq)
		}
	}
	return lost
}

// answer checks that the row equals the caller's answer and no
// other caller got it.
func (b *Books) answer(a *Answer, granted map[string]bool, wrong Report) {
	c := a.Claim
	r := b.ByID[c.ID]
	if r.User != a.User || c.UserID != a.User || r.Quantity != a.Quantity || c.Quantity != a.Quantity ||
		r.Seq != c.Seq || !r.At.Equal(c.ClaimedAt.Time) || c.PacketID != r.Packet.String {
		wrong("I2: claim %s of %s: %s wanted %d, was answered %+v, the row is %+v", c.ID, b.ID, a.User, a.Quantity, *c, *r)
	}
	if granted[c.ID] {
		wrong("I2: two were answered claim %s of %s", c.ID, b.ID)
	}
	granted[c.ID] = true
}

// Counters checks that counters, flushes and rows agree and
// nothing is parked (I2, I6, I7).
func (b *Books) Counters(wrong Report) {
	wrong.Equal("I6", b.ID, "claimed in MySQL and units of live rows", b.Claimed, b.Live)
	remaining := max(0, b.Total-b.Claimed-b.LostUnits)
	wrong.Equal("I6", b.ID, "remaining in MySQL and total less claimed and lost", b.Remaining, remaining)
	wrong.Equal("I7", b.ID, "synced_seq and rows", b.Synced, int64(len(b.Rows)))
	wrong.Equal("I2", b.ID, "parked events and none", b.Parked, 0)
	if !b.Lossy {
		wrong.Equal("I2", b.ID, "claims that are lost or given up and none", b.Lost+b.GivenUp, 0)
		wrong.Equal("I6", b.ID, "units of stock_flushes and of all rows", b.FlushedUnits, b.Ever)
		wrong.Equal("I6", b.ID, "claims of stock_flushes and rows", b.FlushedClaims, int64(len(b.Rows)))
	}
}

// Sequence checks that in each shard seq starts at 1 without gaps, and that a
// user's claims are in one shard (I7, I3). Unanswered claims may leave gaps.
func (b *Books) Sequence(shards int, holes bool, wrong Report) (sound bool) {
	before := map[int]int64{}
	for i := range b.Rows {
		r := &b.Rows[i]
		before[r.Shard]++
		if holes {
			before[r.Shard] = max(before[r.Shard], r.Seq)
		}
		if r.Seq != before[r.Shard] {
			wrong("I7: %s: claim %s has seq %d, the one before it in shard %d %d",
				b.ID, r.ID, r.Seq, r.Shard, before[r.Shard]-1)
			return false
		}
		shard := 0
		if shards > 1 {
			shard = models.ShardOfUser(r.User, shards)
		}
		if r.Shard != shard {
			wrong("I3: %s: claim %s of %s is of shard %d, the user's is %d", b.ID, r.ID, r.User, r.Shard, shard)
		}
	}
	return true
}

// Limits checks that no user exceeds the limits, in total and
// per day of the zone (I3). 0 is no limit.
func (b *Books) Limits(perUser, perDay int64, zone *time.Location, wrong Report) {
	units := map[string]int64{}
	add := func(who string, r *Row, most int64) {
		units[who] += r.Quantity
		if most > 0 && units[who] > most {
			wrong("I3: %s: %s has %d units of %d with seq %d", b.ID, who, units[who], most, r.Seq)
		}
	}
	for i := range b.Rows {
		if r := &b.Rows[i]; r.Status.Live() {
			add(r.User, r, perUser)
			add(r.User+" on "+r.At.In(zone).Format(time.DateOnly), r, perDay)
		}
	}
}

// Stream checks that the stream has every claim once, equal to
// its row (I2, I8).
func (b *Books) Stream(events []event.Event, wrong Report) {
	events = slices.Clone(events)
	slices.SortFunc(events, func(a, b event.Event) int { return cmp.Or(a.Shard-b.Shard, cmp.Compare(a.Seq, b.Seq)) })
	if len(events) != len(b.Rows) {
		wrong("I8: the stream has %d claims of %s, MySQL has %d", len(events), b.ID, len(b.Rows))
		return
	}
	for i := range events {
		e := &events[i]
		r := &b.Rows[i]
		var amount int64
		if e.Amount != nil {
			amount = *e.Amount
		}
		if e.ID != r.ID || e.Shard != r.Shard || e.Seq != r.Seq || e.UserID != r.User || e.Quantity != r.Quantity ||
			e.PacketID != r.Packet.String || amount != r.Amount.Int64 || !b.Lossy && !e.At.Equal(r.At) {
			wrong("I2: %s: the stream says %+v, the row %+v", b.ID, *e, *r)
		}
	}
}

// Redis checks that Redis and MySQL agree on an unsharded campaign (I1, I6).
func (b *Books) Redis(ctx context.Context, scripts *lua.Scripts, wrong Report) {
	lot, err := scripts.State(ctx, b.ID)
	if err != nil {
		wrong("%s: %v", b.ID, err)
		return
	}
	wrong.Equal("I6", b.ID, "units taken in Redis and units of live rows", lot.Taken, b.Live)
	wrong.Equal("I7", b.ID, "seq in Redis and rows", lot.Seq, int64(len(b.Rows)))
	wrong.Equal("I6", b.ID, "total in Redis and in MySQL", lot.Total, b.Total)
	if lot.Taken > lot.Total {
		wrong("I1: %s: %d of %d units are taken", b.ID, lot.Taken, lot.Total)
	}
}
