package operator

import (
	"cmp"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
	"dibs/models"
	"dibs/models/calendar"
)

// BodyMax bounds the body of a campaign or a change, in bytes.
const BodyMax = 1 << 20

// campaignBody is the body of POST /v1/campaigns. nil fields weren't sent.
// A new field of a definition must be added to changeBody, too, and to
// models.DefinitionJSON, which shows it.
type campaignBody struct {
	ID            *string     `json:"id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._-]+$" required:"true" nullable:"false"`
	Kind          *string     `json:"kind" enum:"coupon,packet" required:"true" nullable:"false"`
	Name          *string     `json:"name,omitempty" maxLength:"200"`
	Total         *int64      `json:"total,omitempty" minimum:"0" maximum:"1000000000000" doc:"units; required for a coupon; a packet campaign's total is that of its packets"`
	PerUser       *int64      `json:"per_user,omitempty" minimum:"0" maximum:"1000000000000" doc:"units; 0 is no limit, the default for a coupon; a packet's default is 1"`
	PerUserPerDay *int64      `json:"per_user_per_day,omitempty" minimum:"0" maximum:"1000000000000" doc:"units; 0 is no limit, the default"`
	Limits        []limitBody `json:"limits,omitempty" maxItems:"8" nullable:"false" doc:"per_user and per_user_per_day are short for two of them"`
	TimeZone      *string     `json:"time_zone,omitempty" doc:"IANA zone in which the windows of limits begin; default UTC"`
	StartsAt      *string     `json:"starts_at,omitempty" format:"date-time"`
	EndsAt        *string     `json:"ends_at,omitempty" format:"date-time"`
	LowStockAt    *int64      `json:"low_stock_at,omitempty" minimum:"0" maximum:"1000000000000" doc:"units left at which stock is low; 0 is never"`
	Currency      *string     `json:"currency,omitempty" pattern:"^[A-Z]{3}$"`
	SenderID      *string     `json:"sender_id,omitempty" minLength:"1" maxLength:"128"`
	HoldFor       *string     `json:"hold_for,omitempty" doc:"how long a claim may stay unredeemed, such as 15m; default for ever"`
	HoldMax       *string     `json:"hold_max,omitempty" doc:"how long it may with all extensions; default twice hold_for"`
	Shards        *int64      `json:"shards,omitempty" minimum:"1" maximum:"64" doc:"number of shards, fixed; default 1. More are for a campaign that is too hot for one Redis primary"`
	Public        *publicBody `json:"public,omitempty" doc:"what anybody may read of it without a token, see /v1/campaigns/{id}/public; default false"`
	ShardBy       *string     `json:"shard_by,omitempty" pattern:"^[a-z_]{1,32}$" doc:"of a campaign of several shards: the subject of all its limits, whose value decides the shard of a claim; default user"`

	refused *wire.Problem
}

// publicBody is level, count, or "" for false.
type publicBody string

// Schema is for the document.
func (publicBody) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeBoolean, Enum: []any{false}}, {Type: huma.TypeString, Enum: []any{models.PublicLevel, models.PublicCount}},
	}}
}

// changeBody is the body of PATCH /v1/campaigns/{id}. nil fields stay as
// they are, unless null was sent.
type changeBody struct {
	Name          *string     `json:"name,omitempty" maxLength:"200"`
	Public        *publicBody `json:"public,omitempty"`
	Total         *int64      `json:"total,omitempty" minimum:"0" maximum:"1000000000000"`
	PerUser       *int64      `json:"per_user,omitempty" minimum:"0" maximum:"1000000000000"`
	PerUserPerDay *int64      `json:"per_user_per_day,omitempty" minimum:"0" maximum:"1000000000000"`
	Limits        []limitBody `json:"limits,omitempty" maxItems:"8" nullable:"false" doc:"replaces all limits; a limit that stays keeps its counts"`
	StartsAt      *string     `json:"starts_at,omitempty" format:"date-time" nullable:"true" doc:"null: started at once"`
	EndsAt        *string     `json:"ends_at,omitempty" format:"date-time" nullable:"true" doc:"null: no end"`
	LowStockAt    *int64      `json:"low_stock_at,omitempty" minimum:"0" maximum:"1000000000000"`
	Status        *string     `json:"status,omitempty" enum:"open,paused"`

	noStart, noEnd bool // null was sent
	refused        *wire.Problem
}

func (b *campaignBody) fields() []wire.Field {
	return wire.FieldsOf(b, wire.List("limits", models.LimitsMax, &b.Limits), wire.TextOrFalse("public", &b.Public))
}

func (b *changeBody) fields() []wire.Field {
	return wire.FieldsOf(b, wire.List("limits", models.LimitsMax, &b.Limits), wire.TextOrFalse("public", &b.Public),
		wire.TextOrNull("starts_at", &b.StartsAt, &b.noStart), wire.TextOrNull("ends_at", &b.EndsAt, &b.noEnd))
}

type limitBody struct {
	By  string     `json:"by" pattern:"^[a-z_]{1,32}$" required:"true" doc:"user, or the name of a subject that claims carry"`
	Per models.Per `json:"per" enum:"all,hour,day,week,month" required:"true" doc:"in the campaign's time_zone; a week starts on Monday"`
	Max int64      `json:"max" minimum:"1" maximum:"1000000000000" required:"true" doc:"units"`
}

// limitsOf returns a body's limits, or nil without a list. A limit that is
// also sent by its short name is refused.
func limitsOf(list []limitBody, perUser, perUserPerDay *int64) (*models.Limits, *wire.Problem) {
	if list == nil {
		return nil, nil
	}
	all := make(models.Limits, 0, len(list))
	for _, l := range list {
		all = append(all, models.Limit{By: l.By, Per: l.Per, Max: l.Max})
		isUser := l.By == models.ByUser
		switch {
		case isUser && l.Per == models.PerAll && perUser != nil:
			return nil, wire.Invalid("per_user", "is the limit by user per all, which limits has, too")
		case isUser && l.Per == models.PerDay && perUserPerDay != nil:
			return nil, wire.Invalid("per_user_per_day", "is the limit by user per day, which limits has, too")
		}
	}
	return &all, nil
}

// Decode keeps the refusal for the handler. huma would answer in its own
// form.
func (b *campaignBody) Decode(body []byte) { b.refused = wire.ReadObject(body, b.fields()) }

// Decode keeps the refusal for the handler.
func (b *changeBody) Decode(body []byte) { b.refused = wire.ReadObject(body, b.fields()) }

func (b *campaignBody) campaign() (c models.Campaign, p *wire.Problem) {
	p = b.missing()
	if p != nil {
		return c, p
	}
	c = models.Campaign{
		ID: *b.ID, Kind: models.Kind(*b.Kind), Name: orZero(b.Name), Status: models.StatusOpen, Total: orZero(b.Total),
		TimeZone: "UTC", LowStockAt: orZero(b.LowStockAt),
		Currency: orZero(b.Currency), SenderID: orZero(b.SenderID),
		Shards: int(orZero(b.Shards)), ShardBy: orZero(b.ShardBy), Public: string(orZero(b.Public)),
	}
	limits, p := limitsOf(b.Limits, b.PerUser, b.PerUserPerDay)
	if p != nil {
		return c, p
	}
	models.Change{Limits: limits, PerUser: b.PerUser, PerUserPerDay: b.PerUserPerDay}.Apply(&c)
	if c.ShardBy == models.ByUser {
		c.ShardBy = ""
	}
	if b.TimeZone != nil {
		c.TimeZone = *b.TimeZone
	}
	if c.Kind == models.KindPacket && b.PerUser == nil && c.PerUser == 0 {
		c.PerUser = 1
	}
	var noSender, noStart, noEnd, noHold, noMax, noSense *wire.Problem
	if b.SenderID != nil {
		var err error
		c.SenderID, err = models.UserID(*b.SenderID)
		noSender = wire.InvalidID("sender_id", err)
	}
	c.StartsAt, noStart = parseTime("starts_at", b.StartsAt)
	c.EndsAt, noEnd = parseTime("ends_at", b.EndsAt)
	c.HoldForMs, noHold = parseHold("hold_for", b.HoldFor)
	c.HoldMaxMs, noMax = parseHold("hold_max", b.HoldMax)
	if err := c.Validate(); err != nil {
		noSense = cmp.Or(refusedField(err), wire.Refuse(wire.CodeInvalid))
	}
	return c, cmp.Or(noSender, noStart, noEnd, noHold, noMax, noSense)
}

// missing refuses what models.Campaign can't express.
func (b *campaignBody) missing() *wire.Problem {
	switch {
	case b.refused != nil:
		return b.refused
	case *b.Kind == string(models.KindCoupon) && b.Total == nil:
		return wire.Invalid("total", "is required")
	case *b.Kind == string(models.KindPacket) && orZero(b.Total) != 0:
		return wire.Invalid("total", "must be left out: it comes from the packets")
	}
	return checkName(b.Name)
}

func checkName(name *string) *wire.Problem { return checkText("name", orZero(name)) }

func checkText(field, text string) *wire.Problem {
	if !utf8.ValidString(text) || slices.ContainsFunc([]rune(text), func(r rune) bool { return !strconv.IsPrint(r) }) {
		return wire.Invalid(field, "holds a character that is not printable")
	}
	return nil
}

func parseHold(field string, text *string) (ms int64, p *wire.Problem) {
	if text == nil {
		return 0, nil
	}
	d, err := models.ParseHold(*text)
	return d.Milliseconds(), wire.InvalidID(field, err)
}

func (b *changeBody) change() (models.Change, *wire.Problem) {
	ch := models.Change{
		Name: b.Name, Public: (*string)(b.Public), Total: b.Total, PerUser: b.PerUser, PerUserPerDay: b.PerUserPerDay, LowStockAt: b.LowStockAt,
		Status: (*models.Status)(b.Status),
	}
	var noLimits, noStart, noEnd *wire.Problem
	ch.Limits, noLimits = limitsOf(b.Limits, b.PerUser, b.PerUserPerDay)
	ch.StartsAt, noStart = parseTime("starts_at", b.StartsAt)
	ch.EndsAt, noEnd = parseTime("ends_at", b.EndsAt)
	if b.noStart {
		ch.StartsAt = &time.Time{}
	}
	if b.noEnd {
		ch.EndsAt = &time.Time{}
	}
	return ch, cmp.Or(b.refused, checkName(b.Name), noLimits, noStart, noEnd)
}

// parseTime reads an RFC 3339 time and truncates it to UTC milliseconds.
func parseTime(name string, text *string) (*time.Time, *wire.Problem) {
	if text == nil {
		return nil, nil
	}
	t, err := calendar.ParseTime(*text)
	if err != nil {
		return nil, wire.Invalid(name, "must be an RFC 3339 time such as 2027-01-31T18:00:00Z")
	}
	t = models.NewTime(t).Time
	if t.Year() < 1970 || t.Year() > 9999 {
		return nil, wire.Invalid(name, "must be in the years 1970 to 9999")
	}
	return &t, nil
}

func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
