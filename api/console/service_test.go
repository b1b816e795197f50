package console_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/servetest"
)

const (
	admin  = "admin-0123456789abcdef"
	viewer = "viewer-0123456789abcdef"
	store  = "store-0123456789abcdef"
	within = time.Minute // bounds every wait; busy machines are slow
)

// service is a complete Dibs on embedded servers.
type service struct {
	t    testing.TB
	addr string
	url  string
	stop func()
}

// serve starts a service with tokens. It stops after the test, or earlier
// by stop.
func serve(t testing.TB, environ ...string) *service {
	t.Helper()
	s := &service{t: t, addr: machine.Addr(t)}
	s.url = "http://" + s.addr
	s.stop = s.start(environ...)
	return s
}

func (s *service) start(environ ...string) (stop func()) {
	s.t.Helper()
	usual := slices.DeleteFunc([]string{
		"DIBS_ADMIN_TOKEN=" + admin, "DIBS_VIEWER_TOKEN=" + viewer, "DIBS_STOREFRONT_TOKEN=" + store,
	}, func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.ContainsFunc(environ, func(other string) bool { return strings.HasPrefix(other, name+"=") })
	})
	environ = slices.Concat([]string{"DIBS_HTTP_ADDR=" + s.addr, "DIBS_NAME=syncer-1", "DIBS_SHUTDOWN_TIMEOUT=15s"}, usual, environ)
	_, stop = servetest.Serve(s.t, cmd.Env{Environ: environ})
	return stop
}

func (s *service) ready() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		res, err := http.Get(s.url + "/readyz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, within, 50*time.Millisecond)
}

func (s *service) api(method, path, body string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer "+admin)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return string(text)
}

func (s *service) coupon(id string, total int, more string) {
	s.t.Helper()
	require.Contains(s.t, s.api("POST", "/v1/campaigns", fmt.Sprintf(`{"id":%q,"kind":"coupon","total":%d%s}`, id, total, more)), `"version"`)
}

func (s *service) claim(id string, users ...string) (answers []string) {
	s.t.Helper()
	for _, user := range users {
		answers = append(answers, s.api("POST", "/v1/campaigns/"+id+"/claims", fmt.Sprintf(`{"user_id":%q}`, user)))
	}
	return answers
}

var idOf = regexp.MustCompile(`"id":"([^"]+)"`)

func (s *service) synced(id string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Contains(s.api("GET", "/v1/campaigns/"+id+"/stock", ""), `"backlog":0`) }, within, 20*time.Millisecond)
}

type person struct {
	t      testing.TB
	s      *service
	client *http.Client
}

func (s *service) person() *person {
	jar, err := cookiejar.New(nil)
	require.NoError(s.t, err)
	transport := &http.Transport{}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &person{s.t, s, &http.Client{
		Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

type page struct {
	status int
	header http.Header
	text   string
}

func (p *person) get(path string) page { return p.do("GET", path, nil) }

func (p *person) post(path string, form url.Values, headers ...string) page {
	return p.do("POST", path, form, headers...)
}

func (p *person) do(method, path string, form url.Values, headers ...string) page {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.s.url+path, strings.NewReader(form.Encode()))
	require.NoError(p.t, err)
	req.Header.Set("Accept", "text/html")
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	res, err := p.client.Do(req)
	require.NoError(p.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(p.t, err)
	return page{res.StatusCode, res.Header, string(text)}
}

func (p *person) signIn(token string) page {
	p.t.Helper()
	return p.post("/console/sign-in", url.Values{"token": {token}})
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

var typed = regexp.MustCompile(`Type ([^ ]+) to confirm`)

// form is an action's confirmation form, with the text to type filled in.
func (p *person) form(path string) url.Values {
	p.t.Helper()
	asked := p.get(path)
	require.Equal(p.t, 200, asked.status, asked.text)
	require.Contains(p.t, asked.text, "What will happen")
	form := url.Values{}
	_, body, _ := strings.Cut(asked.text, "<main")
	for _, field := range hidden.FindAllStringSubmatch(body, -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	if confirm := typed.FindStringSubmatch(body); confirm != nil {
		form.Set("confirm", confirm[1])
	}
	return form
}

// act confirms an action. With a wrong confirmation text it must do nothing.
func (p *person) act(path string) page {
	p.t.Helper()
	form := p.form(path)
	if words := form.Get("confirm"); words != "" {
		form.Set("confirm", words+"x")
		require.Equal(p.t, 422, p.post(path, form).status, "other words were typed")
		form.Set("confirm", words)
	}
	return p.post(path, form)
}

func (p *person) create(fields ...string) page {
	p.t.Helper()
	form := url.Values{"csrf": {hidden.FindStringSubmatch(p.get("/console/new").text)[2]}}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return p.post("/console/new", form)
}
