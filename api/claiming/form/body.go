package form

import (
	"cmp"
	"strconv"

	"dibs/api/wire"
	"dibs/models"
)

// Bounds of bodies, in bytes.
const (
	ClaimBodyMax = 4 << 10
	// BatchBodyMax: 1,000 claims with ids, keys and the first subject at their
	// longest.
	BatchBodyMax = 4 << 20
)

// ClaimBody is the body of a claim.
type ClaimBody struct {
	UserID   string `json:"user_id,omitempty" minLength:"1" maxLength:"128" doc:"characters that can be seen, kept in Unicode's normal form C; no blank at either end; not . or ..; required, but with a token of a user, whose sub it is then"`
	Quantity int64  `json:"quantity,omitempty" minimum:"1" maximum:"1000000" doc:"units, all of them or none; 1 unless sent"`

	Subjects models.Subjects `json:"subjects,omitempty" maxProperties:"4" doc:"values that the campaign limits beside the user, such as a device: 1 to 128 characters, as in user_id, by names of a-z and _"`
}

// Fields are those that may be sent.
func (b *ClaimBody) Fields() []wire.Field {
	return []wire.Field{
		wire.Visible("user_id", &b.UserID, models.UserID),
		wire.Integer("quantity", &b.Quantity, 1, models.QuantityMax), wire.Subjects("subjects", &b.Subjects),
	}
}

// DecodeClaim reads a body. user is the user of the token; "" if it has none.
func DecodeClaim(body []byte, user string) (ClaimBody, *wire.Problem) {
	var b ClaimBody
	p := wire.ReadObject(body, b.Fields())
	b.UserID = cmp.Or(b.UserID, user)
	if p == nil && b.UserID == "" {
		p = wire.Invalid("user_id", "is required")
	}
	b.Quantity = cmp.Or(b.Quantity, 1)
	return b, p
}

const batchMax = 1000

// BatchBody is the body of a batch.
type BatchBody struct {
	Claims []BatchClaim `json:"claims" minItems:"1" maxItems:"1000" nullable:"false"`

	user string // as in DecodeClaim
}

// BatchClaim is a claim of a batch. Refused is its own fault, if any.
type BatchClaim struct {
	CampaignID     string `json:"campaign_id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._-]+$"`
	UserID         string `json:"user_id,omitempty" minLength:"1" maxLength:"128" doc:"characters that can be seen, kept in Unicode's normal form C; no blank at either end; not . or ..; required as in NewClaim"`
	Quantity       int64  `json:"quantity,omitempty" minimum:"1" maximum:"1000000" doc:"units; 1 unless sent"`
	IdempotencyKey string `json:"idempotency_key,omitempty" minLength:"1" maxLength:"255" doc:"characters that can be seen, kept in Unicode's normal form C; no blank at either end"`

	Subjects models.Subjects `json:"subjects,omitempty" maxProperties:"4" doc:"as in NewClaim"`

	Refused *wire.Problem `json:"-"`
}

// Fields are those that may be sent.
func (c *BatchClaim) Fields() []wire.Field {
	return []wire.Field{
		wire.ID("campaign_id", &c.CampaignID, models.CheckCampaignID).Required(),
		wire.Visible("user_id", &c.UserID, models.UserID),
		wire.Integer("quantity", &c.Quantity, 1, models.QuantityMax), wire.Subjects("subjects", &c.Subjects),
		wire.Visible("idempotency_key", &c.IdempotencyKey, models.IdempotencyKey),
	}
}

// Fields are those that may be sent.
func (b *BatchBody) Fields() []wire.Field {
	check := func(c *BatchClaim, i int, p *wire.Problem) *wire.Problem {
		c.UserID = cmp.Or(c.UserID, b.user)
		return c.check(i, p)
	}
	return []wire.Field{wire.Each("claims", batchMax, &b.Claims, (*BatchClaim).Fields, check)}
}

// check records a claim's fault with the claim, so that the others continue.
func (c *BatchClaim) check(i int, p *wire.Problem) *wire.Problem {
	switch {
	case p != nil && p.Field == "":
		p = wire.Within("claims["+strconv.Itoa(i)+"]", p)
	case p != nil:
	case c.UserID == "":
		p = wire.Invalid("user_id", "is required")
	}
	c.Quantity = cmp.Or(c.Quantity, 1)
	c.Refused = p
	return nil //nolint:nilerr // a Problem is no error here, and stays with its claim
}

// DecodeBatch refuses a batch that is unreadable, empty or too large.
// A faulty claim has its own refusal.
func DecodeBatch(body []byte, user string) ([]BatchClaim, *wire.Problem) {
	b := BatchBody{user: user}
	p := wire.ReadObject(body, b.Fields())
	if p == nil && len(b.Claims) == 0 {
		p = wire.Invalid("claims", "must be 1 to "+strconv.Itoa(batchMax))
	}
	return b.Claims, p
}
