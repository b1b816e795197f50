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

// claimOutcomes are what the codes of claim.lua for one claim mean, but for the limits, which have theirs in their table.
var claimOutcomes = map[int64]models.Outcome{
	0: models.OutcomeClaimed, 1: models.OutcomeReplayed, 2: models.OutcomeIdempotencyMismatch, 3: models.OutcomePaused,
	4: models.OutcomeClosed, 5: models.OutcomeNotStarted, 6: models.OutcomeEnded, 7: models.OutcomeSoldOut,
	10: models.OutcomeDamaged, 11: models.OutcomeNotReleased,
}

// outcomeOf tells what a code of claim.lua for one claim means.
func outcomeOf(code int64) (outcome models.Outcome, known bool) {
	for i := range limits {
		if limits[i].code == code {
			return limits[i].refusal, true
		}
	}
	outcome, known = claimOutcomes[code]
	return outcome, known
}

// claim.lua's own words: a Redis whose clock is not within a day of ours, and one that went back behind what the caller saw.
const (
	statusClock      = 3
	statusRolledBack = 4
)

// firstRefusal is the code of the first of claimOutcomes that takes nothing.
const firstRefusal = 2

// headLength is the elements of a reply before the first claim's.
const headLength = 5

// Position is a moment in a campaign's life in Redis, as somebody saw it: of load Epoch, Seq claims were accepted.
type Position struct{ Epoch, Seq int64 }

// Before tells whether s was earlier than o.
func (s Position) Before(o Position) bool {
	return s.Epoch < o.Epoch || s.Epoch == o.Epoch && s.Seq < o.Seq
}

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
	replies, now, err := s.ClaimAfter(ctx, m, Position{}, reqs)
	return replies, now.Remaining, err
}

// CampaignView is a campaign as a call of claim.lua left it.
type CampaignView struct {
	Position
	Remaining int64 // units
}

// ClaimAfter is Claim for a caller who remembers what it saw of the campaign. A Redis that went back behind that (an older
// snapshot, a failover to a replica that lagged) gives OutcomeRolledBack for every claim; now is what it holds then. now is
// zero when Redis does not hold the campaign.
func (s *Scripts) ClaimAfter(ctx context.Context, m Meta, seen Position, reqs []ClaimRequest) (replies []ClaimReply, now CampaignView, err error) {
	if err := checkClaims(m, reqs); err != nil {
		return nil, CampaignView{}, err
	}
	k := KeysOf(m.ID, m.Partition)
	keys := []string{k.State, k.Users, k.Keys, k.Stream}
	if m.Kind == models.KindPacket {
		keys = append(keys, k.Waves)
	}
	reply, kept, err := s.runKept(ctx, s.claim, keys, s.claimArgs(m, seen, reqs))
	if err != nil {
		return nil, CampaignView{}, err
	}
	code, err := status("claim", reply)
	if err != nil {
		return nil, CampaignView{}, err
	}
	switch code {
	case statusOK:
		replies, now, err = decodeClaims(m, reqs, reply)
		if err == nil {
			err = s.keep(ctx, m.Partition, replies, kept)
		}
		if err != nil {
			return nil, CampaignView{}, err
		}
		return replies, now, nil
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
		if q := reqs[i].Quantity; q < 1 || q > models.QuantityMax { // below 1 would give stock back
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

// serverNow is what scripts take for the time: nothing, so that they ask Redis, or a test's clock.
func (s *Scripts) serverNow() string {
	if s.opts.ServerClock == nil {
		return ""
	}
	return formatInt(s.opts.ServerClock())
}

// claimArgs lays out ARGV as the head of claim.lua says.
func (s *Scripts) claimArgs(m Meta, seen Position, reqs []ClaimRequest) []any {
	table := s.days.at(s.opts.Clock(), m.Location)
	args := make([]any, 0, 4+len(table.starts)+columns*len(reqs))
	args = append(args, s.serverNow(), table.first)
	for _, start := range table.starts {
		args = append(args, start)
	}
	args = append(args, seen.Epoch, seen.Seq)
	first, n := len(args), len(reqs)
	args = args[:first+columns*n]
	for i := range reqs {
		fillColumns(args[first+i:], n, m, &reqs[i])
	}
	return args
}

// columns is how many elements of ARGV a claim takes: one in each column.
const columns = 6

// fillColumns writes what a claim takes of each column, n apart.
func fillColumns(args []any, n int, m Meta, req *ClaimRequest) {
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
	args[0], args[n], args[2*n] = req.UserID, req.Quantity, key
	args[3*n], args[4*n], args[5*n] = record, req.ID.String(), eventPart(m, req, keyDigest)
}

// bodyDigest tells one body from another under the same key.
func bodyDigest(req *ClaimRequest) (digest [digestLength]byte) {
	appendBodyDigest(digest[:0], []byte(req.UserID), req.Quantity)
	return digest
}

// appendBodyDigest appends the digest of a claim's body.
func appendBodyDigest(b, userID []byte, quantity int64) []byte {
	body := make([]byte, 8, 8+models.UserIDLength)
	binary.BigEndian.PutUint64(body, uint64(quantity))
	sum := sha256.Sum256(append(body, userID...))
	return append(b, sum[:digestLength]...)
}

// eventPart is the JSON of the event that only the caller knows: from the value of user_id up to that of seq.
func eventPart(m Meta, req *ClaimRequest, keyDigest string) []byte {
	b := make([]byte, 0, 48+len(req.UserID)+len(keyDigest))
	b = appendJSONString(b, req.UserID)
	b = append(b, `,"quantity":`...)
	b = strconv.AppendInt(b, req.Quantity, 10)
	if keyDigest != "" {
		b = append(b, `,"key":"`...)
		b = append(b, keyDigest...)
		b = append(b, '"')
	}
	if m.Kind == models.KindPacket && m.Currency != "" { // the amount follows
		b = append(b, `,"currency":"`...)
		b = append(b, m.Currency...)
		b = append(b, '"')
	}
	return append(b, `,"seq":`...)
}

// appendJSONString writes s as a JSON string; the common plain one without the cost of encoding/json.
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

func decodeClaims(m Meta, reqs []ClaimRequest, reply []any) ([]ClaimReply, CampaignView, error) {
	if len(reply) < headLength+len(reqs) {
		return nil, CampaignView{}, badReply("claim", reply)
	}
	packets := reply[headLength+len(reqs):]
	head, ok := numbersOf(reply[1:headLength])
	if !ok {
		return nil, CampaignView{}, badReply("claim", reply)
	}
	replies := make([]ClaimReply, len(reqs))
	for i := range reqs {
		if err := decodeAnswer(&replies[i], m, &reqs[i], head[0], reply[headLength+i]); err != nil {
			return nil, CampaignView{}, err
		}
		if m.Kind == models.KindPacket && replies[i].Outcome == models.OutcomeClaimed {
			if len(packets) == 0 || !putPacket(&replies[i].Claim, m, packets[0]) {
				return nil, CampaignView{}, badReply("claim", reply)
			}
			packets = packets[1:]
		}
	}
	if len(packets) > 0 {
		return nil, CampaignView{}, badReply("claim", reply)
	}
	return replies, CampaignView{Position: Position{Epoch: head[2], Seq: head[3]}, Remaining: head[1]}, nil
}

// decodeAnswer reads the answer to one claim: seq of one made now, the record of one made before, or a code less than 0.
func decodeAnswer(reply *ClaimReply, m Meta, req *ClaimRequest, now int64, answer any) error {
	switch v := answer.(type) {
	case int64:
		if v > 0 {
			reply.Outcome, reply.Claim = models.OutcomeClaimed, claimOf(m, req, req.ID, v, now)
			return nil
		}
		refusal, known := outcomeOf(-v)
		if !known || v > -firstRefusal {
			return badReply("claim", []any{answer})
		}
		reply.Outcome = refusal
		return nil
	case string:
		id, seq, at, packet, err := parseRecord(m, req, v)
		if err != nil {
			return err
		}
		reply.Outcome, reply.Claim = models.OutcomeReplayed, claimOf(m, req, id, seq, at)
		if m.Kind == models.KindPacket && !putPacket(&reply.Claim, m, packet) {
			return badReply("claim", []any{answer})
		}
		return nil
	default:
		return badReply("claim", []any{answer})
	}
}

func decodeRolledBack(reqs []ClaimRequest, reply []any) ([]ClaimReply, CampaignView, error) {
	if len(reply) != 3 {
		return nil, CampaignView{}, badReply("claim", reply)
	}
	held, ok := numbersOf(reply[1:])
	if !ok {
		return nil, CampaignView{}, badReply("claim", reply)
	}
	return sameForAll(reqs, models.OutcomeRolledBack), CampaignView{Position: Position{Epoch: held[0], Seq: held[1]}}, nil
}

// numbersOf reads elements of a reply that are all numbers.
func numbersOf(elements []any) (numbers [headLength - 1]int64, ok bool) {
	for i, element := range elements {
		if numbers[i], ok = element.(int64); !ok {
			return numbers, false
		}
	}
	return numbers, true
}

// parseRecord reads "digest of the body (8 bytes), claim id (16 bytes, under a client's key only), seq:at_ms", and behind it
// ":amount:id" of a packet, or the mark of a claim that was released.
func parseRecord(m Meta, req *ClaimRequest, record string) (id uuid.UUID, seq, at int64, packet string, err error) {
	rest, id := record, req.ID
	if len(rest) >= digestLength {
		rest = rest[digestLength:]
	}
	if req.Key != "" && len(rest) >= keyLength {
		copy(id[:], rest)
		rest = rest[keyLength:]
	}
	if m.Kind != models.KindPacket {
		rest = strings.TrimSuffix(strings.TrimSuffix(rest, markByLoad), markTold) // the first answer, whatever became of the claim
	}
	seqText, atText, found := strings.Cut(rest, ":")
	if m.Kind == models.KindPacket {
		atText, packet, _ = strings.Cut(atText, ":")
	}
	seq, seqErr := strconv.ParseInt(seqText, 10, 64)
	at, atErr := strconv.ParseInt(atText, 10, 64)
	if !found || seqErr != nil || atErr != nil {
		return id, 0, 0, "", badReply("claim", []any{record})
	}
	return id, seq, at, packet, nil
}

// putPacket gives a claim the packet that "amount:id" says.
func putPacket(c *models.Claim, m Meta, packet any) bool {
	text, _ := packet.(string)
	amountText, id, _ := strings.Cut(text, ":")
	amount, err := strconv.ParseInt(amountText, 10, 64)
	c.PacketID, c.Amount, c.Currency = id, &amount, m.Currency
	return err == nil && models.CheckCampaignID(id) == nil
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
