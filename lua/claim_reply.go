package lua

import (
	"strconv"
	"strings"

	"github.com/google/uuid"

	"dibs/models"
)

var claimOutcomes = map[int64]models.Outcome{
	0: models.OutcomeClaimed, 1: models.OutcomeReplayed, 2: models.OutcomeIdempotencyMismatch, 3: models.OutcomePaused,
	4: models.OutcomeClosed, 5: models.OutcomeNotStarted, 6: models.OutcomeEnded, 7: models.OutcomeSoldOut,
	8: models.OutcomeUserLimit, 9: models.OutcomeUserDayLimit,
	10: models.OutcomeDamaged, 11: models.OutcomeNotReleased, 12: models.OutcomeDry,
	13: models.OutcomeLimit, 14: models.OutcomeInvalid,
}

func outcomeOf(code int64) (outcome models.Outcome, known bool) {
	if code >= codeScale { // the rest is the number of a limit
		code /= codeScale
	}
	outcome, known = claimOutcomes[code]
	return outcome, known
}

const (
	codeScale    = 100 // a refusal by a limit is code*codeScale + the limit's number
	firstRefusal = 2   // the lowest code of a refusal
	headLength   = 6   // elements of a reply before those of claims
)

func decodeClaims(m Meta, reqs []ClaimRequest, reply []any) ([]ClaimReply, CampaignView, error) {
	if len(reply) < headLength+len(reqs) {
		return nil, CampaignView{}, badReply("claim", reply)
	}
	rest := reply[headLength+len(reqs):]
	head, ok := numbersOf(reply[1:headLength])
	if !ok {
		return nil, CampaignView{}, badReply("claim", reply)
	}
	view := CampaignView{Position: Position{Epoch: head[2], Seq: head[3], Units: head[4]}, Remaining: head[1]}
	replies := make([]ClaimReply, len(reqs))
	for i := range reqs {
		if err := decodeAnswer(&replies[i], m, &reqs[i], head[0], reply[headLength+i]); err != nil {
			return nil, CampaignView{}, err
		}
		if replies[i].Outcome == models.OutcomeClaimed {
			replies[i].Epoch = view.Epoch
		}
		if m.Kind == models.KindPacket && replies[i].Outcome == models.OutcomeClaimed {
			if len(rest) == 0 || !putPacket(&replies[i].Claim, m, rest[0]) {
				return nil, CampaignView{}, badReply("claim", reply)
			}
			rest = rest[1:]
		}
	}
	if len(rest) > 0 && ok {
		ok = putLimits(m, replies, reply[headLength:], rest[0], head[0])
		rest = rest[1:]
	}
	if len(rest) > 0 || !ok {
		return nil, CampaignView{}, badReply("claim", reply)
	}
	return replies, view, nil
}

// putLimits sets the limits of refused claims from the list at the end
// of a reply. It returns false for a bad list.
func putLimits(m Meta, replies []ClaimReply, answers []any, list any, nowMs int64) bool {
	refused := false
	for i := range replies {
		if o := replies[i].Outcome; o != models.OutcomeLimit && o != models.OutcomeInvalid {
			continue
		}
		code, _ := answers[i].(int64)
		replies[i].Limit = hit(m, list, -code%codeScale, nowMs)
		if replies[i].Limit == nil {
			return false
		}
		refused = true
	}
	return refused
}

// decodeAnswer decodes the answer to one claim: the seq
// of a new one, the record of a replayed one, or 0 less
// the code of a refusal. nowMs is the time of the call.
func decodeAnswer(reply *ClaimReply, m Meta, req *ClaimRequest, nowMs int64, answer any) error {
	switch v := answer.(type) {
	case int64:
		if v > 0 {
			reply.Outcome = models.OutcomeClaimed
			reply.Claim = claimOf(m, req, req.ID, v, nowMs)
			return nil
		}
		refusal, known := outcomeOf(-v)
		if !known || v > -firstRefusal {
			return badReply("claim", []any{answer})
		}
		reply.Outcome = refusal
		switch refusal {
		case models.OutcomeUserLimit:
			reply.Limit = hitOf(m, models.Limit{By: models.ByUser, Per: models.PerAll}, nowMs)
		case models.OutcomeUserDayLimit:
			reply.Limit = hitOf(m, models.Limit{By: models.ByUser, Per: models.PerDay}, nowMs)
		default: // see putLimits
		}
		return nil
	case string:
		id, seq, at, packet, err := parseRecord(m, req, v)
		if err != nil {
			return err
		}
		reply.Outcome = models.OutcomeReplayed
		reply.Claim = claimOf(m, req, id, seq, at)
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

func numbersOf(elements []any) (numbers [headLength - 1]int64, ok bool) {
	for i, element := range elements {
		numbers[i], ok = element.(int64)
		if !ok {
			return numbers, false
		}
	}
	return numbers, true
}

// putPacket sets a claim's packet from "amount:id".
func putPacket(c *models.Claim, m Meta, packet any) bool {
	text, _ := packet.(string)
	amountText, id, _ := strings.Cut(text, ":")
	amount, err := strconv.ParseInt(amountText, 10, 64)
	c.PacketID = id
	c.Amount = &amount
	c.Currency = m.Currency
	return err == nil && models.CheckCampaignID(id) == nil
}

func claimOf(m Meta, req *ClaimRequest, id uuid.UUID, seq, at int64) models.Claim {
	c := models.Claim{
		ID: id.String(), CampaignID: m.CampaignID(), UserID: req.UserID, Quantity: req.Quantity, Seq: seq,
		Status: models.ClaimClaimed, ClaimedAt: models.TimeFromMs(at),
	}
	if m.HoldForMs > 0 {
		expires := models.TimeFromMs(at + m.HoldForMs)
		c.ExpiresAt = &expires
	}
	return c
}
