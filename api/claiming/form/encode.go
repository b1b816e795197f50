package form

import (
	"encoding/json"
	"strconv"

	"dibs/models"
)

// AppendClaim writes a new claim exactly as encoding/json does, but
// much faster. A test compares the two.
func AppendClaim(b []byte, c *models.Claim) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, c.ID)
	b = append(b, `,"campaign_id":`...)
	b = appendString(b, c.CampaignID)
	b = append(b, `,"user_id":`...)
	b = appendString(b, c.UserID)
	b = append(b, `,"quantity":`...)
	b = strconv.AppendInt(b, c.Quantity, 10)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, c.Seq, 10)
	b = append(b, `,"status":`...)
	b = appendString(b, string(c.Status))
	b = append(b, `,"claimed_at":`...)
	b = appendTime(b, c.ClaimedAt)
	return append(appendExtras(b, c), '}')
}

func appendExtras(b []byte, c *models.Claim) []byte {
	if c.PacketID != "" {
		b = append(b, `,"packet_id":`...)
		b = appendString(b, c.PacketID)
	}
	if c.Amount != nil {
		b = append(b, `,"amount":`...)
		b = strconv.AppendInt(b, *c.Amount, 10)
	}
	if c.Currency != "" {
		b = append(b, `,"currency":`...)
		b = appendString(b, c.Currency)
	}
	if c.ExpiresAt != nil {
		b = append(b, `,"expires_at":`...)
		b = appendTime(b, *c.ExpiresAt)
	}
	return b
}

func appendTime(b []byte, t models.Time) []byte {
	b = append(b, '"')
	b = t.AppendFormat(b, models.TimeLayout)
	return append(b, '"')
}

// appendString writes s as a JSON string. Text that needs no escape is
// copied.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil { // a string always marshals
				panic(err)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
