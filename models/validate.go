package models

import (
	"errors"
	"fmt"
	"strings"
)

// FieldError refuses one field of a request. Field is its JSON name. Reason
// is a phrase that follows the name.
type FieldError struct{ Field, Reason string }

// Error reads "total: must be …".
func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

func refuse(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func (c *Campaign) validateTimes() error {
	if _, err := c.Location(); err != nil {
		return refuse("time_zone", "must be an IANA zone such as Europe/Berlin")
	}
	if c.StartsAt != nil && c.EndsAt != nil && !c.StartsAt.Before(*c.EndsAt) {
		return refuse("ends_at", "must be after starts_at")
	}
	if c.HoldForMs < 0 || c.HoldForMs > HoldMax.Milliseconds() {
		return refuse("hold_for", "must be 0 to %s", HoldMax)
	}
	if c.HoldMaxMs > HoldMax.Milliseconds() || c.HoldMaxMs != 0 && c.HoldMaxMs < c.HoldForMs {
		return refuse("hold_max", "must be hold_for to %s", HoldMax)
	}
	if c.HoldForMs == 0 && c.HoldMaxMs > 0 {
		return refuse("hold_max", "must be left out without hold_for")
	}
	if c.Kind == KindPacket && c.HoldForMs > 0 {
		return refuse("hold_for", "must be left out: a packet's amount is credited as it is claimed")
	}
	if c.Currency != "" && !IsCurrency(c.Currency) {
		return refuse("currency", "must be three capital letters (ISO 4217)")
	}
	if c.SenderID != "" {
		if err := CheckUserID(c.SenderID); err != nil {
			return refuse("sender_id", "%s", reason(err))
		}
	}
	return nil
}

// IsCurrency reports whether code has the form of an ISO 4217 code.
func IsCurrency(code string) bool {
	return len(code) == 3 && strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// reason is the message without the text of ErrID.
func reason(err error) string {
	if errors.Is(err, ErrID) {
		return err.Error()[len(ErrID.Error())+2:]
	}
	return err.Error()
}
