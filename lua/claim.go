package lua

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"dibs/models"
)

// ClaimsMax is the most claims that one call of claim.lua takes: at some 5 µs each it holds Redis under a millisecond.
const ClaimsMax = 128

// ClaimRequest asks for units of a campaign. The caller has checked its fields, see models.CheckUserID and its neighbours.
type ClaimRequest struct {
	ID       uuid.UUID // made by the caller; the claim's id if it is accepted, and what makes sending it twice harmless
	UserID   string
	Quantity int64  // units, 1 to models.QuantityMax
	Key      string // the client's idempotency key; "" is none
}

// ClaimReply answers a ClaimRequest. Claim is set when Outcome.Took(), and is the same each time a key is replayed.
type ClaimReply struct {
	Outcome models.Outcome
	Claim   models.Claim
}

// claimOutcomes are claim.lua's codes for one claim, in order.
var claimOutcomes = []models.Outcome{
	models.OutcomeClaimed,
	models.OutcomeReplayed,
	models.OutcomeIdempotencyMismatch,
	models.OutcomePaused,
	models.OutcomeClosed,
	models.OutcomeNotStarted,
	models.OutcomeEnded,
	models.OutcomeSoldOut,
	models.OutcomeUserLimit,
	models.OutcomeUserDayLimit,
	models.OutcomeDamaged,
}

// statusClock is claim.lua's word for a Redis whose clock is not within a day of ours.
const statusClock = 3

const (
	keyLength    = 16 // bytes of a claim id, and of the digest of an idempotency key
	digestLength = 8  // bytes of the digest of a body
)

// Claim runs up to ClaimsMax claims of one campaign in one call of claim.lua and answers each, in order; remaining is the
// units left after the call. Claims of one user or one key in the same call see each other.
//
// A campaign that Redis does not hold, or holds damaged, gives OutcomeAbsent or OutcomeDamaged for every claim. A user's or
// a claim's record that is damaged gives OutcomeDamaged for the claims that need it, and the others of the call go on.
// Errors: ErrUnavailable (surely nothing was claimed) and ErrOutcomeUnknown; after the latter the same requests, with the
// same ids, may be sent again and are not claimed twice.
func (s *Scripts) Claim(ctx context.Context, m Meta, reqs []ClaimRequest) (replies []ClaimReply, remaining int64, err error) {
	if len(reqs) == 0 || len(reqs) > ClaimsMax {
		return nil, 0, fmt.Errorf("%w: %d claims in a call, must be 1 to %d", ErrUnavailable, len(reqs), ClaimsMax)
	}
	for i := range reqs {
		if q := reqs[i].Quantity; q < 1 || q > models.QuantityMax { // below 1 would give stock back
			return nil, 0, fmt.Errorf("%w: claim of %d units not sent, must be 1 to %d", ErrUnavailable, q, models.QuantityMax)
		}
	}
	k := KeysOf(m.ID, m.Partition)
	keys := []string{k.State, k.Users, k.Keys, k.Stream}
	reply, err := s.run(ctx, s.claim, keys, s.claimArgs(m, reqs))
	if err != nil {
		return nil, 0, err
	}
	code, err := status("claim", reply)
	if err != nil {
		return nil, 0, err
	}
	switch code {
	case statusOK:
		return decodeClaims(m, reqs, reply)
	case statusAbsent:
		return sameForAll(reqs, models.OutcomeAbsent), 0, nil
	case statusDamaged:
		return sameForAll(reqs, models.OutcomeDamaged), 0, nil
	case statusClock:
		return nil, 0, fmt.Errorf("%w: redis' clock and this machine's differ by more than a day", ErrUnavailable)
	default:
		return nil, 0, badReply("claim", reply)
	}
}

func sameForAll(reqs []ClaimRequest, outcome models.Outcome) []ClaimReply {
	replies := make([]ClaimReply, len(reqs))
	for i := range replies {
		replies[i].Outcome = outcome
	}
	return replies
}

// claimArgs lays out ARGV as the head of claim.lua says.
func (s *Scripts) claimArgs(m Meta, reqs []ClaimRequest) []any {
	now := ""
	if s.opts.ServerClock != nil {
		now = formatInt(s.opts.ServerClock())
	}
	table := s.days.at(s.opts.Clock(), m.Location)
	args := make([]any, 0, 2+len(table.starts)+6*len(reqs))
	args = append(args, now, table.first)
	for _, start := range table.starts {
		args = append(args, start)
	}
	for i := range reqs {
		args = appendClaimArgs(args, m, &reqs[i])
	}
	return args
}

func appendClaimArgs(args []any, m Meta, req *ClaimRequest) []any {
	id := req.ID.String()
	body := bodyDigest(req)
	key := string(req.ID[:])
	record := string(body[:])
	keyDigest := ""
	if req.Key != "" {
		digest := sha256.Sum256([]byte(req.Key))
		record += key // the field no longer names the claim, so the record must
		key = string(digest[:keyLength])
		keyDigest = base64.RawURLEncoding.EncodeToString(digest[:keyLength])
	}
	return append(args, req.UserID, req.Quantity, key, record, id, eventHead(m, req, id, keyDigest))
}

// bodyDigest tells one body from another under the same key.
func bodyDigest(req *ClaimRequest) [digestLength]byte {
	buf := make([]byte, 8, 8+len(req.UserID))
	binary.BigEndian.PutUint64(buf, uint64(req.Quantity))
	sum := sha256.Sum256(append(buf, req.UserID...))
	return [digestLength]byte(sum[:digestLength])
}

// eventHead is the JSON of the event up to what only the script knows: the value of seq, then epoch and at.
func eventHead(m Meta, req *ClaimRequest, id, keyDigest string) []byte {
	b := make([]byte, 0, 160+len(m.ID)+len(req.UserID)+len(keyDigest))
	b = append(b, `{"v":1,"type":"claim.accepted","id":"`...)
	b = append(b, id...)
	b = append(b, `","campaign_id":"`...)
	b = append(b, m.ID...)
	b = append(b, `","user_id":`...)
	b = appendJSONString(b, req.UserID)
	b = append(b, `,"quantity":`...)
	b = strconv.AppendInt(b, req.Quantity, 10)
	if keyDigest != "" {
		b = append(b, `,"key":"`...)
		b = append(b, keyDigest...)
		b = append(b, '"')
	}
	return append(b, `,"seq":`...)
}

// appendJSONString writes s as a JSON string; the common plain one without the cost of encoding/json.
func appendJSONString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string always marshals
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func decodeClaims(m Meta, reqs []ClaimRequest, reply []any) ([]ClaimReply, int64, error) {
	if len(reply) != 3+2*len(reqs) {
		return nil, 0, badReply("claim", reply)
	}
	now, nowOK := reply[1].(int64)
	remaining, remainingOK := reply[2].(int64)
	if !nowOK || !remainingOK {
		return nil, 0, badReply("claim", reply)
	}
	replies := make([]ClaimReply, len(reqs))
	for i := range reqs {
		code, ok := reply[3+2*i].(int64)
		if !ok || code < 0 || int(code) >= len(claimOutcomes) {
			return nil, 0, badReply("claim", reply)
		}
		replies[i].Outcome = claimOutcomes[code]
		if !replies[i].Outcome.Took() {
			continue
		}
		claim, err := decodeClaim(m, &reqs[i], now, reply[4+2*i])
		if err != nil {
			return nil, 0, err
		}
		replies[i].Claim = claim
	}
	return replies, remaining, nil
}

// decodeClaim makes the claim from seq, for one made now, or from the record of one made before.
func decodeClaim(m Meta, req *ClaimRequest, now int64, value any) (models.Claim, error) {
	switch v := value.(type) {
	case int64:
		return claimOf(m, req, req.ID, v, now), nil
	case string:
		id, seq, at, err := parseRecord(req, v)
		if err != nil {
			return models.Claim{}, err
		}
		return claimOf(m, req, id, seq, at), nil
	default:
		return models.Claim{}, badReply("claim", []any{value})
	}
}

// parseRecord reads "digest of the body (8 bytes), claim id (16 bytes, under a client's key only), seq:at_ms".
func parseRecord(req *ClaimRequest, record string) (id uuid.UUID, seq, at int64, err error) {
	rest, id := record, req.ID
	if len(rest) >= digestLength {
		rest = rest[digestLength:]
	}
	if req.Key != "" && len(rest) >= keyLength {
		copy(id[:], rest)
		rest = rest[keyLength:]
	}
	seqText, atText, found := strings.Cut(rest, ":")
	seq, seqErr := strconv.ParseInt(seqText, 10, 64)
	at, atErr := strconv.ParseInt(atText, 10, 64)
	if !found || seqErr != nil || atErr != nil {
		return id, 0, 0, badReply("claim", []any{record})
	}
	return id, seq, at, nil
}

func claimOf(m Meta, req *ClaimRequest, id uuid.UUID, seq, at int64) models.Claim {
	c := models.Claim{
		ID: id.String(), CampaignID: m.ID, UserID: req.UserID, Quantity: req.Quantity, Seq: seq,
		Status: models.ClaimClaimed, ClaimedAt: models.TimeFromMs(at),
	}
	if m.HoldForMs > 0 {
		expires := models.TimeFromMs(at + m.HoldForMs)
		c.ExpiresAt = &expires
	}
	return c
}
