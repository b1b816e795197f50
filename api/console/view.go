package console

import (
	"bytes"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"dibs/api/console/form"
	"dibs/api/console/health"
	"dibs/api/console/signin"
	"dibs/api/console/words"
	"dibs/api/wire"
	"dibs/models"
)

type shell struct {
	Version  string
	SignedIn bool
	Open     bool
	Who      signin.Who
	CSRF     string
	Page     any
}

func (c *Console) functions() template.FuncMap {
	return template.FuncMap{
		"asset": func(name string) string { return Path + "/static/" + name + "?v=" + c.static[name].version },
		"n":     words.Number, "plural": words.Plural, "money": words.Money, "took": words.Took, "ago": words.Ago,
		"time": when, "deref": deref[int64],
		"state": stateOf, "iso": iso, "isoOf": func(t *models.Time) string { return iso(timeOf(t)) },
		"percent": func(part, all int64) string {
			if all == 0 {
				return "–"
			}
			return words.Number(100*part/all) + " %"
		},
		"add":    func(a, b int) int { return a + b },
		"silent": health.IsSilent, "advice": health.Advice,
		"campaignOf": models.CampaignIDOf, "sort": headOf, "options": optionsOf, "values": form.Values, "limits": form.Limits,
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

func deref[T int64](v *T) string {
	if v == nil {
		return "–"
	}
	return words.Number(int64(*v))
}

// show answers with a page. s is nil if the user isn't signed in.
func (c *Console) show(w http.ResponseWriter, s *signin.Session, status int, page string, data any) {
	view := shell{Version: c.cfg.Version, Open: c.cfg.SignIn.Open, Page: data}
	if s != nil {
		view.SignedIn = true
		view.CSRF = s.CSRF
		view.Who = s.Who
	}
	c.render(w, status, page, "layout", view)
}

func (c *Console) showSignIn(w http.ResponseWriter, status int, page signin.Page) {
	c.show(w, nil, status, "sign-in", page)
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

func (c *Console) refuse(w http.ResponseWriter, r *http.Request, s *signin.Session, p *wire.Problem) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		p.Write(w)
		return
	}
	c.show(w, s, p.GetStatus(), "refused", p.JSON())
}
