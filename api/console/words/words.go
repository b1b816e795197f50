// Package words writes figures, money and durations for people.
package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"dibs/models"
)

// NotKnown is written for what an unreachable server should answer. That
// server's own line of the health strip has the cause.
const NotKnown = "not known"

// Number writes a number with commas.
func Number(n int64) string { return strings.Replace(humanize.Comma(n), "-", "−", 1) }

// Plural writes how many things there are.
func Plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, is := strings.CutSuffix(thing, "y"); is {
		return Number(n) + " " + stem + "ies"
	}
	if strings.HasSuffix(thing, "s") {
		return Number(n) + " " + thing + "es"
	}
	return Number(n) + " " + thing + "s"
}

// Money formats minor units: "1.25 EUR".
func Money(amount int64, code string) string {
	digits, ok := models.MinorDigits(code)
	if !ok { // a campaign without a currency, or an older one with a code without minor units
		return strings.TrimSuffix(Number(amount)+" minor units of "+code, " of ")
	}
	text := fmt.Sprintf("%0*d", digits+1, max(amount, -amount))
	whole, err := strconv.ParseInt(text[:len(text)-digits], 10, 64)
	if err != nil { // it has at most 16 digits
		return text
	}
	text = Number(whole) + strings.TrimSuffix("."+text[len(text)-digits:], ".")
	if amount < 0 {
		text = "−" + text
	}
	return text + " " + code
}

// ParseMoney reads an amount such as 1.25 as minor units.
func ParseMoney(text, code string) (minor int64, ok bool) {
	digits, _ := models.MinorDigits(code) // without a currency, minor units are typed
	whole, part, _ := strings.Cut(text, ".")
	if len(part) > digits || whole == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(whole+part+strings.Repeat("0", digits-len(part)), 10, 62)
	return int64(n), err == nil
}

// Ago is how long ago t was.
func Ago(t time.Time) string { return Took(time.Since(t)) }

// Took writes a duration.
func Took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatInt(int64(d.Seconds()), 10) + " s"
	default:
		text := d.Truncate(time.Second).String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		return text
	}
}

// Bytes writes an amount of memory.
func Bytes(n int64) string { return Number(n>>20) + " MB" }
