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
)

// ClaimsMax is the most claims that one call of claim.lua takes. At some 5 µs a claim it holds Redis under a millisecond.
const ClaimsMax = 128

// ClaimRequest asks for units of a campaign. The caller has checked its fields, see models.CheckUserID and its neighbours.
type ClaimRequest struct {
	ID       uuid.UUID // made by the caller: the id of the claim if it is accepted. A request with the same id is a replay
	UserID   string
	Subjects models.Subjects // beside the user, as they are stored
	Quantity int64           // units, 1 to models.QuantityMax
	Key      string          // the client's idempotency key; "" is none
	// TraceParent goes into the metadata of the claim's event; "" is none.
	TraceParent string
}

// ClaimReply answers a ClaimRequest. Claim is set when Outcome.Took(), and is the same each time a key is replayed.
type ClaimReply struct {
	Outcome models.Outcome
	Claim   models.Claim
	Epoch   int64     // of the load that a claim was taken from; 0 of any other answer
	Limit   *LimitHit // of OutcomeLimit; of OutcomeInvalid the limit whose subject the claim lacks; else nil
	Left    int64     // of OutcomeSoldOut, as its caller fills it in: units that are left, too few for the claim
}

const (
	statusClock      = 3 // claim.lua's reply when Redis' clock and ours differ by more than a day
	statusRolledBack = 4 // claim.lua's reply when Redis was rolled back behind what the caller saw
)

// Claim runs up to ClaimsMax claims of one campaign in one call of claim.lua and answers each, in order; remaining is the
// units left after the call. Claims of one user or one key in the same call see each other.
//
// A campaign that Redis does not hold, or holds damaged, gives OutcomeAbsent or OutcomeDamaged for every claim. A damaged record of
// a user or a claim gives OutcomeDamaged for the claims that need it; the call's other claims go on. Errors: ErrUnavailable (surely
// nothing was claimed) and ErrOutcomeUnknown. After the latter the same requests, with the same ids, may be sent again, and no claim
// is taken twice.
func (s *Scripts) Claim(ctx context.Context, m Meta, reqs []ClaimRequest) (replies []ClaimReply, remaining int64, err error) {
	replies, view, err := s.ClaimAfter(ctx, m, Position{}, reqs)
	return replies, view.Remaining, err
}

// CampaignView is a campaign as a call of claim.lua left it.
type CampaignView struct {
	Position
	Remaining int64 // units
}

// ClaimAfter is Claim for a caller that remembers how far it saw the campaign. A Redis that was rolled back behind that (an older
// snapshot, a failover to a replica that lagged) gives OutcomeRolledBack for every claim, and fences the campaign in the same step; view
// is what it holds. view is zero when Redis does not hold the campaign.
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
	reply, err := s.run(ctx, s.claim, keys, s.claimArgs(m, seen, reqs))
	if err != nil {
		return nil, CampaignView{}, err
	}
	code, err := status("claim", reply)
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

// serverNow is the argument now_ms of scripts: empty, so that they ask Redis, or the time of a test's clock.
func (s *Scripts) serverNow() string {
	if s.opts.ServerClock == nil {
		return ""
	}
	return formatInt(s.opts.ServerClock())
}

// claimArgs lays out ARGV as the header of claim.lua says.
func (s *Scripts) claimArgs(m Meta, seen Position, reqs []ClaimRequest) []any {
	table := s.days.at(s.opts.Clock(), m.Location)
	args := make([]any, 0, 7+len(table.starts)+columns*len(reqs))
	args = append(args, s.serverNow(), table.first)
	for _, start := range table.starts {
		args = append(args, start)
	}
	args = append(args, seen.Epoch, seen.Seq, seen.Units)
	subjects := subjectColumns(reqs)
	args = append(args, strings.Join(subjects, " "))
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

// tracesOf lists the claims that are traced; nil when none is.
func tracesOf(reqs []ClaimRequest) (traces []byte) {
	for i := range reqs {
		if parent := reqs[i].TraceParent; parent != "" {
			traces = strconv.AppendInt(traces, int64(i+1), 10)
			traces = append(append(append(traces, '='), parent...), ';')
		}
	}
	return traces
}

// columns is how many elements of ARGV a claim has, one in each column.
const columns = 6

// fillColumns writes a claim's element of each column. Columns are n apart.
func (s *Scripts) fillColumns(args []any, n int, m Meta, req *ClaimRequest) {
	body := BodyDigestOf(req.UserID, req.Quantity, req.Subjects)
	key := string(req.ID[:])
	record := string(body[:])
	keyDigest := ""
	if req.Key != "" {
		digest := sha256.Sum256([]byte(scopeOf(m, req) + "\x00" + req.Key)) // a key is its user's: another user may have it as well
		record += key                                                       // the field does not name the claim, so the record must
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

// scopeOf is whose an idempotency key is: the user's, and where another subject decides about the shard, of its value too.
func scopeOf(m Meta, req *ClaimRequest) string {
	if subject := m.subject(req.UserID, req.Subjects); subject != req.UserID {
		return req.UserID + "\x00" + subject
	}
	return req.UserID
}

// eventPart is the part of the event's JSON that only the caller knows: from the value of user_id up to the value of seq.
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
		b = append(b, `,"mode":"`+models.ModeMySQL+`"`...)
	}
	if m.Kind == models.KindPacket && m.Currency != "" { // the amount follows
		b = append(b, `,"currency":"`...)
		b = append(b, m.Currency...)
		b = append(b, '"')
	}
	return append(b, `,"seq":`...)
}

// appendJSONString writes s as a JSON string. A plain one does not cost a call of encoding/json.
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
