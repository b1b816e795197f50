package event

import (
	"time"

	"dibs/models"
)

// scan reads the plain form that Dibs writes: one flat object of known
// fields, integers, and strings of printable ASCII without escapes. For
// anything else it returns false and leaves the event to encoding/json. So it
// needs to know no more of JSON. Nearly all events have this form. Reflection
// would take a fifth of a consumer's time per claim.
func scan(payload []byte, e *Event) bool {
	s := scanner{text: string(payload)}
	if !s.take('{') {
		return false
	}
	for {
		name, ok := s.string()
		if !ok || !s.take(':') || !s.field(name, e) {
			return false
		}
		if s.take(',') {
			continue
		}
		return s.take('}') && s.at == len(s.text)
	}
}

type scanner struct {
	text string // the event's strings share its memory
	at   int
}

// field reads the value of a field; false if it doesn't know the field.
func (s *scanner) field(name string, e *Event) (ok bool) {
	switch name {
	case "v":
		var v int64
		v, ok = s.integer()
		e.V = int(v)
	case "type":
		var t string
		t, ok = s.string()
		e.Type = Type(t)
	case "id":
		e.ID, ok = s.string()
	case "campaign_id":
		e.CampaignID, ok = s.string()
	case "user_id":
		e.UserID, ok = s.string()
	case "quantity":
		e.Quantity, ok = s.integer()
	case "key":
		e.Key, ok = s.string()
	case "mode":
		e.Mode, ok = s.string()
	case "seq":
		e.Seq, ok = s.integer()
	case "epoch":
		e.Epoch, ok = s.integer()
	case "shard":
		var shard int64
		shard, ok = s.integer()
		e.Shard = int(shard)
	case "packet_id":
		e.PacketID, ok = s.string()
	case "amount":
		var amount int64
		amount, ok = s.integer()
		e.Amount = &amount
	case "currency":
		e.Currency, ok = s.string()
	case "at":
		e.At, ok = s.time()
	default:
		return s.resolution(name, e)
	}
	return ok
}

func (s *scanner) resolution(name string, e *Event) (ok bool) {
	switch name {
	case "claim_id":
		e.ClaimID, ok = s.string()
	case "claimed_at":
		var at models.Time
		at, ok = s.time()
		e.ClaimedAt = &at
	case "order_id":
		e.OrderID, ok = s.string()
	case "reason":
		e.Reason, ok = s.string()
	}
	return ok
}

func (s *scanner) take(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) string() (string, bool) {
	if !s.take('"') {
		return "", false
	}
	for from := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[from : s.at-1], true
		case c < 0x20 || c > 0x7e || c == '\\':
			return "", false
		}
	}
	return "", false
}

// integerDigits is the number of digits that always fit an int64.
const integerDigits = 18

// integer reads digits without sign, point or exponent.
func (s *scanner) integer() (int64, bool) {
	from := s.at
	n := int64(0)
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		n = 10*n + int64(s.text[s.at]-'0')
		s.at++
	}
	digits := s.at - from
	return n, digits == 1 || digits > 1 && digits <= integerDigits && s.text[from] != '0'
}

// time reads exactly TimeLayout.
func (s *scanner) time() (models.Time, bool) {
	text, ok := s.string()
	if !ok || len(text) != len(models.TimeLayout) {
		return models.Time{}, false
	}
	for i, c := range []byte("dddd-dd-ddTdd:dd:dd.dddZ") {
		if c == 'd' && (text[i] < '0' || text[i] > '9') || c != 'd' && text[i] != c {
			return models.Time{}, false
		}
	}
	number := func(from, to int) (n int) {
		for _, c := range []byte(text[from:to]) {
			n = 10*n + int(c-'0')
		}
		return n
	}
	year := number(0, 4)
	month := time.Month(number(5, 7))
	day := number(8, 10)
	hour := number(11, 13)
	minute := number(14, 16)
	second := number(17, 19)
	if hour > 23 || minute > 59 || second > 59 {
		return models.Time{}, false
	}
	t := time.Date(year, month, day, hour, minute, second, number(20, 23)*int(time.Millisecond), time.UTC)
	// time.Date normalizes a day that the calendar lacks
	return models.Time{Time: t}, t.Month() == month && t.Day() == day
}
