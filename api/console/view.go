package console

import (
	"bytes"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"dibs/api/wire"
	"dibs/models"
)

type shell struct {
	Version  string
	SignedIn bool
	Open     bool
	Who      Who
	CSRF     string
	Page     any
}

func (c *Console) functions() template.FuncMap {
	return template.FuncMap{
		"asset": func(name string) string { return Path + "/static/" + name + "?v=" + c.static[name].version },
		"n":     number, "time": when, "ago": ago, "deref": deref[int64], "took": took, "plural": plural, "money": money,
		"state": stateOf, "iso": iso, "isoOf": func(t *models.Time) string { return iso(timeOf(t)) },
		"percent": func(part, all int64) string {
			if all == 0 {
				return "–"
			}
			return number(100*part/all) + " %"
		},
		"add":    func(a, b int) int { return a + b },
		"silent": func(d time.Duration) bool { return d > silentAfter }, "advice": adviceFor,
		"campaignOf": models.CampaignIDOf, "sort": headOf, "options": optionsOf, "values": valuesOf, "limits": limitsOf,
		"maybe": func(t *models.Time) template.HTML {
			if t == nil {
				return "–"
			}
			return when(t.Time)
		},
	}
}

// stateOf is a campaign's state in one word. The page's script has the same
// rules.
func stateOf(status models.Status, starts, ends *time.Time, left, total int64) string {
	now := time.Now()
	switch {
	case status != models.StatusOpen:
		return string(status)
	case left == 0 && total > 0:
		return "sold out"
	case starts != nil && starts.After(now):
		return "scheduled"
	case ends != nil && !ends.After(now):
		return "ended"
	}
	return string(status)
}

// silentAfter is how long a process may be silent before the page shows it.
const silentAfter = 3 * time.Second

func number(n int64) string { return strings.Replace(humanize.Comma(n), "-", "−", 1) }

// when shows a time in UTC. The page's script converts it to the reader's
// zone.
func when(t time.Time) template.HTML {
	t = t.UTC()
	text := "<time datetime=\"" + t.Format(models.TimeLayout) + "\">" + t.Format("2006-01-02 15:04:05") + " UTC</time>"
	return template.HTML(text) //nolint:gosec // digits
}

// iso is a time for scripts; "" for nil.
func iso(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(models.TimeLayout)
}

func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, is := strings.CutSuffix(thing, "y"); is {
		return number(n) + " " + stem + "ies"
	}
	if strings.HasSuffix(thing, "s") {
		return number(n) + " " + thing + "es"
	}
	return number(n) + " " + thing + "s"
}

type option struct{ Value, Name string }

func optionsOf(pairs ...string) (all []option) {
	for pair := range slices.Chunk(pairs, 2) {
		all = append(all, option{pair[0], pair[1]})
	}
	return all
}

type head struct {
	Name, Title, Href string
	On                bool
	Order             string
}

func headOf(t *campaignTable, name, title string) head {
	order := "descending"
	if slices.Contains([]models.CampaignSort{models.SortByID, models.SortByStatus, models.SortByLeft}, models.CampaignSort(name)) {
		order = "ascending"
	}
	return head{Name: name, Title: title, Href: t.Href(name, 0), On: t.Sort == name, Order: order}
}

// money formats minor units: "1.25 EUR".
func money(amount int64, code string) string {
	digits, ok := models.MinorDigits(code)
	if !ok { // a campaign without a currency, or an older one with a code without minor units
		return strings.TrimSuffix(number(amount)+" minor units of "+code, " of ")
	}
	text := fmt.Sprintf("%0*d", digits+1, max(amount, -amount))
	whole, err := strconv.ParseInt(text[:len(text)-digits], 10, 64)
	if err != nil { // it has at most 16 digits
		return text
	}
	text = number(whole) + strings.TrimSuffix("."+text[len(text)-digits:], ".")
	if amount < 0 {
		text = "−" + text
	}
	return text + " " + code
}

func ago(t time.Time) string { return took(time.Since(t)) }

func took(d time.Duration) string {
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

func bytesOf(n int64) string { return number(n>>20) + " MB" }

func deref[T int64](v *T) string {
	if v == nil {
		return "–"
	}
	return number(int64(*v))
}

// show answers with a page. s is nil if the user isn't signed in.
func (c *Console) show(w http.ResponseWriter, s *session, status int, page string, data any) {
	view := shell{Version: c.cfg.Version, Open: c.cfg.Open, Page: data}
	if s != nil {
		view.SignedIn = true
		view.CSRF = s.CSRF
		view.Who = s.who
	}
	c.render(w, status, page, "layout", view)
}

// fragment answers with a part of a page, for its script.
func (c *Console) fragment(w http.ResponseWriter, name string, data any) {
	c.render(w, http.StatusOK, "overview", name, data)
}

func (c *Console) render(w http.ResponseWriter, status int, page, name string, data any) {
	var body bytes.Buffer
	if err := c.pages[page].ExecuteTemplate(&body, name, data); err != nil {
		c.cfg.Logger.Error("a page of the console failed", slog.String("page", page), slog.Any("error", err))
		wire.Refuse(wire.CodeInternal).Write(w)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // a disconnected browser needs no answer
}

func (c *Console) refuse(w http.ResponseWriter, r *http.Request, s *session, p *wire.Problem) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		p.Write(w)
		return
	}
	c.show(w, s, p.GetStatus(), "refused", problemOf(p))
}

func problemOf(p *wire.Problem) wire.ProblemJSON {
	var said wire.ProblemJSON
	read(p.Append(nil), &said)
	return said
}
