package console

import (
	"bytes"
	"encoding/json"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/models"
)

// shell is what every page shows around its own.
type shell struct {
	Version  string
	SignedIn bool
	Open     bool
	CSRF     string
	Page     any
}

// functions are what templates call.
func (c *Console) functions() template.FuncMap {
	return template.FuncMap{
		"asset": func(name string) string { return Path + "/static/" + name + "?v=" + c.static[name].version },
		"n":     number, "time": when, "ago": ago, "deref": deref[int64], "took": took, "bytes": bytesOf,
		"json": func(text json.RawMessage) string { return string(text) },
		"maybe": func(t *models.Time) string {
			if t == nil {
				return "–"
			}
			return when(t.Time)
		},
	}
}

// number writes thousands apart.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }

func ago(t time.Time) string { return took(time.Since(t)) }

// took writes a duration in one unit or two.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatInt(int64(d.Seconds()), 10) + " s"
	default:
		return strings.TrimSuffix(d.Truncate(time.Second).String(), "0s")
	}
}

func bytesOf(n int64) string { return number(n>>20) + " MB" }

func deref[T int64](v *T) string {
	if v == nil {
		return "–"
	}
	return number(int64(*v))
}

// show answers with a page. s is nil when nobody is signed in.
func (c *Console) show(w http.ResponseWriter, s *session, status int, page string, data any) {
	view := shell{Version: c.cfg.Version, Open: c.cfg.Open, Page: data}
	if s != nil {
		view.SignedIn, view.CSRF = true, s.CSRF
	}
	c.render(w, status, page, "layout", view)
}

// fragment answers with a part of a page, which its script puts in.
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
	_, _ = w.Write(body.Bytes()) // a browser that is gone needs no answer
}

// refuse answers with a page that says why not.
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
