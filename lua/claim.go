package lua

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"dibs/models"
	"dibs/models/event"
)

// ClaimsMax bounds the claims of a call: at
// some 5 µs each, under a millisecond of Redis.
const ClaimsMax = 128

// ClaimRequest is a claim. The caller has checked its fields.
type ClaimRequest struct {
	ID       uuid.UUID // becomes the id of the claim; the same id again is a replay
	UserID   string
	Subjects models.Subjects // other than the user, as stored
	Quantity int64           // units, 1 to models.QuantityMax
	Key      string          // the client's idempotency key, or ""
	// TraceParent goes into the metadata of the claim's event.
	TraceParent string
}

// ClaimReply answers a ClaimRequest. Claim is set
// if Outcome.Took(), and the same in replays.
type ClaimReply struct {
	Outcome models.Outcome
	Claim   models.Claim
	Epoch   int64 // of the load that a claim was taken from; else 0
	// Limit refused the claim, or the claim lacks its subject: OutcomeInvalid.
	// Replies lack Max of per_user and per_user_per_day.
	Limit *LimitHit
	Left  int64 // of OutcomeSoldOut: units left, set by the caller
}

const (
	statusClock      = 3 // claim.lua: Redis' clock and ours differ by more than a day
	statusRolledBack = 4 // claim.lua: Redis is behind what the caller saw
)

// Claim runs up to ClaimsMax claims of one campaign in one call. It
// answers them in order. Claims of one user or key in a call see each
// other. remaining is the stock after the call.
//
// A missing or damaged campaign gives OutcomeAbsent
// or OutcomeDamaged for every claim. A damaged record
// gives OutcomeDamaged for the claims that need it.
//
// Errors: ErrUnavailable (nothing was claimed), ErrOutcomeUnknown. A
// retry with the same ids claims nothing twice.
func (s *Scripts) Claim(ctx context.Context, m Meta, reqs []ClaimRequest) (replies []ClaimReply, remaining int64, err error) {
	replies, view, err := s.ClaimAfter(ctx, m, Position{}, reqs)
	return replies, view.Remaining, err
}

// CampaignView is a campaign after a call of claim.lua.
type CampaignView struct {
	Position
	Remaining int64 // units
}

// ClaimAfter is Claim for a caller that remembers how far it saw the
// campaign. If Redis is behind that (an old snapshot, a lagging
// replica), every claim gets OutcomeRolledBack, and the campaign is
// stopped. view is Redis' state, zero if the campaign is missing.
func (s *Scripts) ClaimAfter(
	ctx context.Context, m Meta, seen Position, reqs []ClaimRequest,
) (replies []ClaimReply, view CampaignView, err error) {
	if err := checkClaims(m, reqs); err != nil {
		return nil, CampaignView{}, err
	}
	k := KeysOf(m.ID, m.Partition)
	keys := []string{k.State, k.Users, k.Keys, k.Stream, k.Signals}
	if m.Kind == models.KindPacket {
		keys = append(keys, k.Waves)
	}
	code, reply, err := s.run(ctx, "claim", keys, s.claimArgs(m, seen, reqs))
	if err != nil {
		return nil, CampaignView{}, err
	}
	switch code {
	case statusOK:
		return decodeClaims(m, reqs, reply)
	case statusAbsent:
		return sameForAll(reqs, models.OutcomeAbsent), CampaignView{}, nil
	case statusDamaged:
		return sameForAll(reqs, models.OutcomeDamaged), CampaignView{}, nil
	case statusClock:
		return nil, CampaignView{}, fmt.Errorf("%w: redis' clock and this machine's differ by more than a day", ErrUnavailable)
	case statusRolledBack:
		return decodeRolledBack(reqs, reply)
	default:
		return nil, CampaignView{}, badReply("claim", reply)
	}
}

func checkClaims(m Meta, reqs []ClaimRequest) error {
	if len(reqs) == 0 || len(reqs) > ClaimsMax {
		return fmt.Errorf("%w: %d claims in a call, must be 1 to %d", ErrUnavailable, len(reqs), ClaimsMax)
	}
	for i := range reqs {
		if q := reqs[i].Quantity; q < 1 || q > models.QuantityMax { // below 1 would add stock
			return fmt.Errorf("%w: claim of %d units not sent, must be 1 to %d", ErrUnavailable, q, models.QuantityMax)
		} else if q != 1 && m.Kind == models.KindPacket {
			return fmt.Errorf("%w: claim of %d packets not sent, must be 1", ErrUnavailable, q)
		}
	}
	return nil
}

func sameForAll(reqs []ClaimRequest, outcome models.Outcome) []ClaimReply {
	replies := make([]ClaimReply, len(reqs))
	for i := range replies {
		replies[i].Outcome = outcome
	}
	return replies
}

// serverNow is now_ms of scripts: empty, or the time of a test's clock.
func (s *Scripts) serverNow() string {
	if s.opts.ServerClock == nil {
		return ""
	}
	return formatInt(s.opts.ServerClock())
}

// claimArgs lays out ARGV as in the header of claim.lua.
func (s *Scripts) claimArgs(m Meta, seen Position, reqs []ClaimRequest) []any {
	table := s.days.at(s.opts.Clock(), m.Location)
	args := make([]any, 0, 8+len(table.starts)+columns*len(reqs))
	args = append(args, s.serverNow(), table.first)
	for _, start := range table.starts {
		args = append(args, start)
	}
	args = append(args, seen.Epoch, seen.Seq, seen.Units)
	subjects := subjectColumns(reqs)
	args = append(args, strings.Join(subjects, " "), m.MadeMs)
	first := len(args)
	n := len(reqs)
	args = args[:first+columns*n]
	for i := range reqs {
		s.fillColumns(args[first+i:], n, m, &reqs[i])
	}
	for _, name := range subjects {
		for i := range reqs {
			args = append(args, subjectField(reqs[i].Subjects, name))
		}
	}
	if traces := tracesOf(reqs); traces != nil {
		args = append(args, traces)
	}
	return args
}

func tracesOf(reqs []ClaimRequest) (traces []byte) {
	for i := range reqs {
		if parent := reqs[i].TraceParent; parent != "" {
			traces = strconv.AppendInt(traces, int64(i+1), 10)
			traces = append(append(append(traces, '='), parent...), ';')
		}
	}
	return traces
}

// columns is the number of ARGV's columns; a claim has an element in each.
const columns = 6

// fillColumns writes a claim's elements. Columns are n apart.
func (s *Scripts) fillColumns(args []any, n int, m Meta, req *ClaimRequest) {
	body := BodyDigestOf(req.UserID, req.Quantity, req.Subjects)
	key := string(req.ID[:])
	record := string(body[:])
	keyDigest := ""
	if req.Key != "" {
		// a key is scoped by user: another user may send the same
		digest := sha256.Sum256([]byte(scopeOf(m, req) + "\x00" + req.Key))
		// unlike the field, the record names the claim
		record += key
		key = string(digest[:keyLength])
		keyDigest = base64.RawURLEncoding.EncodeToString(digest[:keyLength])
	}
	args[0] = req.UserID
	args[n] = req.Quantity
	args[2*n] = key
	args[3*n] = record
	args[4*n] = req.ID.String()
	args[5*n] = s.eventPart(m, req, keyDigest)
}

// scopeOf is the scope of an idempotency key: the
// user, and the subject that selects the shard.
func scopeOf(m Meta, req *ClaimRequest) string {
	if subject := m.subject(req.UserID, req.Subjects); subject != req.UserID {
		return req.UserID + "\x00" + subject
	}
	return req.UserID
}

// eventPart is the caller's part of the event's
// JSON, from the value of user_id to that of seq.
func (s *Scripts) eventPart(m Meta, req *ClaimRequest, keyDigest string) []byte {
	b := make([]byte, 0, 48+len(req.UserID)+len(keyDigest))
	b = appendJSONString(b, req.UserID)
	b = append(b, `,"quantity":`...)
	b = strconv.AppendInt(b, req.Quantity, 10)
	if len(req.Subjects) > 0 {
		b = append(b, `,"subjects":`...)
		b = append(b, req.Subjects.JSON()...)
	}
	if keyDigest != "" {
		b = append(b, `,"key":"`...)
		b = append(b, keyDigest...)
		b = append(b, '"')
	}
	if s.opts.Durability == MySQL {
		b = append(b, `,"mode":"`+event.ModeMySQL+`"`...)
	}
	if m.Kind == models.KindPacket && m.Currency != "" { // the amount follows
		b = append(b, `,"currency":"`...)
		b = append(b, m.Currency...)
		b = append(b, '"')
	}
	return append(b, `,"seq":`...)
}

// appendJSONString appends a JSON string. Plain ones skip encoding/json.
func appendJSONString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) //nolint:errchkjson // a string always marshals
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
