package claiming

import (
	"bytes"
	"strconv"

	"dibs/api/wire"
	"dibs/models"
)

// Bounds of bodies, in bytes.
const (
	ClaimBodyMax = 4 << 10
	BatchBodyMax = 4 << 20 // 1,000 claims whose ids and keys are as long as they may be
)

// BatchMax is the most claims of one POST to claims:batch.
const BatchMax = 1000

// claimBody is the body of a claim, as the OpenAPI document has it.
type claimBody struct {
	UserID   string `json:"user_id" minLength:"1" maxLength:"128" doc:"printable characters"`
	Quantity int64  `json:"quantity,omitempty" minimum:"1" maximum:"1000000" default:"1" doc:"units; all of them or none"`
}

var claimFields = []string{"user_id", "quantity"}

// decodeClaim reads the body of a claim.
func decodeClaim(body []byte) (claimBody, *wire.Problem) {
	if b, ok := decodeUsualClaim(body); ok {
		return b, nil
	}
	b := claimBody{Quantity: 1}
	p := wire.ScanObject(body, claimFields, func(s *wire.Scanner, i int) (p *wire.Problem) {
		if i == 0 {
			b.UserID, p = s.UserID("user_id")
			return p
		}
		b.Quantity, p = s.Integer("quantity", 1, models.QuantityMax)
		return p
	})
	if p == nil && b.UserID == "" {
		p = wire.Invalid("user_id", "is required")
	}
	return b, p
}

const (
	usualClaimStart = `{"user_id":"`
	usualClaimEnd   = `"}`
	usualClaimOfOne = `","quantity":1}`
)

// decodeUsualClaim reads the bodies that nearly all claims have, byte for byte: one unit for a user id of plain characters.
func decodeUsualClaim(body []byte) (claimBody, bool) {
	id, start := bytes.CutPrefix(body, []byte(usualClaimStart))
	id, end := bytes.CutSuffix(id, []byte(usualClaimEnd))
	if !end {
		id, end = bytes.CutSuffix(id, []byte(usualClaimOfOne))
	}
	if !start || !end || len(id) == 0 || len(id) > models.UserIDLength {
		return claimBody{}, false
	}
	for _, c := range id {
		if c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			return claimBody{}, false
		}
	}
	return claimBody{UserID: string(id), Quantity: 1}, true
}

// batchClaim is one claim of a batch, as the OpenAPI document has it.
type batchClaim struct {
	CampaignID     string `json:"campaign_id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._-]+$"`
	UserID         string `json:"user_id" minLength:"1" maxLength:"128" doc:"printable characters"`
	Quantity       int64  `json:"quantity,omitempty" minimum:"1" maximum:"1000000" default:"1"`
	IdempotencyKey string `json:"idempotency_key,omitempty" minLength:"1" maxLength:"255" doc:"printable characters"`

	refused *wire.Problem
}

// batchBody is the body of claims:batch, as the OpenAPI document has it.
type batchBody struct {
	Claims []batchClaim `json:"claims" minItems:"1" maxItems:"1000" nullable:"false"`
}

var (
	batchFields      = []string{"claims"}
	batchClaimFields = []string{"campaign_id", "user_id", "quantity", "idempotency_key"}
)

// decodeBatch reads the body of claims:batch. A claim that can't be accepted carries its own refusal; the batch is refused
// only when it can't be read, or has too many or no claims.
func decodeBatch(body []byte) ([]batchClaim, *wire.Problem) {
	var claims []batchClaim
	p := wire.ScanObject(body, batchFields, func(s *wire.Scanner, _ int) *wire.Problem {
		return s.Array("claims", func(i int) *wire.Problem {
			if i == BatchMax {
				return wire.Invalid("claims", "must be 1 to "+strconv.Itoa(BatchMax))
			}
			c, p := readBatchClaim(s, i)
			claims = append(claims, c)
			return p
		})
	})
	if p == nil && len(claims) == 0 {
		p = wire.Invalid("claims", "must be 1 to "+strconv.Itoa(BatchMax))
	}
	return claims, p
}

// readBatchClaim reads the claim at place at. Only a broken text is returned; a refusal stays with the claim.
func readBatchClaim(s *wire.Scanner, at int) (c batchClaim, broken *wire.Problem) {
	c.Quantity = 1
	if !s.AtObject() {
		c.refused = s.WrongType("claims["+strconv.Itoa(at)+"]", "an object")
	} else {
		c.refused = s.Object(batchClaimFields, c.set)
	}
	if c.refused == nil {
		c.refused = c.missing()
	}
	if c.refused != nil && c.refused.Code == wire.CodeMalformed {
		return c, c.refused
	}
	return c, nil
}

func (c *batchClaim) set(s *wire.Scanner, i int) (p *wire.Problem) {
	switch i {
	case 0:
		c.CampaignID, p = s.CampaignID(batchClaimFields[i])
	case 1:
		c.UserID, p = s.UserID(batchClaimFields[i])
	case 2:
		c.Quantity, p = s.Integer(batchClaimFields[i], 1, models.QuantityMax)
	default:
		c.IdempotencyKey, p = s.IdempotencyKey(batchClaimFields[i])
	}
	return p
}

func (c *batchClaim) missing() *wire.Problem {
	if c.CampaignID == "" {
		return wire.Invalid("campaign_id", "is required")
	}
	if c.UserID == "" {
		return wire.Invalid("user_id", "is required")
	}
	return nil
}
