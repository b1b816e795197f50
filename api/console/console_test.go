package console_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
)

// A service starts slowly, so these share one.
func TestPagesOfOneService(t *testing.T) {
	t.Parallel()
	shared := serve(t, "DIBS_FLUSH_SIZE=1234")
	for name, test := range map[string]func(*testing.T, *service){
		"who is not signed in sees nothing":      whoIsNotSignedInSeesNothing,
		"signing in leads back":                  signingInLeadsBackWhereOneCameFrom,
		"signing out ends the session":           signingOutEndsTheSession,
		"a session is known by every process":    aSessionIsKnownByEveryProcess,
		"a change needs the form of its session": aChangeNeedsTheFormOfItsOwnSession,
		"each action says what it will do":       eachActionSaysWhatItWillDoAndDoesIt,
		"a change meanwhile is not overwritten":  aChangeOfSomebodyElseMeanwhileIsNotOverwritten,
		"a viewer is refused":                    aViewerIsRefusedAndToldWhy,
		"support redeems and releases":           supportRedeemsAndReleases,
		"a campaign is created":                  aCampaignIsCreatedAndItsPacketsAreAdded,
		"a claim is found":                       aClaimIsFoundByItsIDItsUserAndItsOrder,
		"claims are listed":                      theClaimsOfACampaignAreListed,
		"processes and settings":                 processesAndSettings,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := *shared
			s.t = t
			test(t, &s)
		})
	}
}

func whoIsNotSignedInSeesNothing(t *testing.T, s *service) {
	s.coupon("seen", 5, "")
	p := s.person()
	for _, path := range []string{
		"/console", "/console/watch", "/console/campaigns/seen", "/console/campaigns/seen/close", "/console/find?q=ada", "/console/claims/x",
	} {
		got := p.get(path)
		require.Equal(t, 303, got.status, path)
		require.True(t, strings.HasPrefix(got.header.Get("Location"), "/console/sign-in"), path)
		require.Equal(t, 401, p.do("GET", path, nil, "Accept", "text/event-stream").status, "a script is refused plainly: %s", path)
	}
	require.Equal(t, 401, p.post("/console/campaigns/seen/close", url.Values{}).status)
	require.NotContains(t, s.api("GET", "/v1/campaigns/seen", ""), "closed")
	require.Equal(t, 404, p.get("/console/nothing").status)

	require.Equal(t, 401, p.signIn("a-token-that-nobody-has").status)
	require.Equal(t, 403, p.signIn(store).status, "a storefront may not read campaigns here")
	require.Equal(t, 303, p.get("/console").status, "and has no session from trying")
	got := p.signIn(viewer)
	require.Equal(t, 303, got.status)
	cookie := got.header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Lax", "Path=/console"} {
		require.Contains(t, cookie, want)
	}
	require.NotContains(t, cookie, viewer)
	require.Equal(t, 200, p.get("/console").status)
	require.Contains(t, p.get("/console/campaigns/seen").header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'")
	require.NotContains(t, p.get("/console").header.Get("Content-Security-Policy"), "unsafe")
}

func signingInLeadsBackWhereOneCameFrom(t *testing.T, s *service) {
	p := s.person()
	require.Equal(t, "/console/sign-in?to=%2Fconsole%2Ftrouble", p.get("/console/trouble").header.Get("Location"))
	for to, want := range map[string]string{
		"/console/trouble": "/console/trouble", "": "/console", "https://evil.example": "/console", "//evil.example": "/console",
		"/console/../v1": "/console", "/consoleevil": "/console",
	} {
		got := p.post("/console/sign-in", url.Values{"token": {viewer}, "to": {to}})
		require.Equal(t, want, got.header.Get("Location"), to)
	}
}

// Processes with the same tokens must share sessions; others must not.
func aSessionIsKnownByEveryProcess(t *testing.T, s *service) {
	two, other := serve(t), serve(t, "DIBS_ADMIN_TOKEN=another-0123456789abcdef")
	p := s.person()
	require.Equal(t, 303, p.signIn(viewer).status)
	at := func(other *service) int {
		elsewhere := *p
		elsewhere.s = other
		return elsewhere.get("/console").status // cookies ignore ports
	}
	require.Equal(t, 200, at(s))
	require.Equal(t, 200, at(two))
	require.Equal(t, 303, at(other), "another secret")
}

// Signing out must end every copy of the cookie, and open streams within a
// heartbeat.
func signingOutEndsTheSession(t *testing.T, s *service) {
	s.coupon("left", 5, "")
	p, copied, another := s.person(), s.person(), s.person()
	p.signIn(admin)
	another.signIn(admin)
	at, err := url.Parse(s.url + "/console")
	require.NoError(t, err)
	cookies := p.client.Jar.Cookies(at)
	copied.client.Jar.SetCookies(at, cookies)
	csrf := url.Values{"csrf": {hidden.FindStringSubmatch(p.get("/console").text)[2]}}
	require.Equal(t, 200, copied.get("/console").status, "control")
	require.Equal(t, 200, p.do(http.MethodHead, "/console", nil).status, "a request without a body needs no form")
	paused := copied.post("/console/campaigns/left/pause", csrf)
	require.Equal(t, 303, paused.status, "control: %s", paused.text)
	watch, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/console/watch", nil)
	require.NoError(t, err)
	stream, err := copied.client.Do(watch)
	require.NoError(t, err)
	defer func() { _ = stream.Body.Close() }()
	require.Equal(t, 200, stream.StatusCode)
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, stream.Body)
		ended <- err
	}()

	require.Equal(t, 303, p.post("/console/sign-out", csrf).status)
	require.Equal(t, 303, p.get("/console").status)
	require.Equal(t, 303, copied.get("/console").status)
	copied.client.Jar.SetCookies(at, cookies)
	require.Equal(t, 401, copied.post("/console/campaigns/left/open", csrf).status)
	require.Contains(t, s.api("GET", "/v1/campaigns/left", ""), `"status":"paused"`)
	require.Equal(t, 200, another.get("/console").status, "other sessions of the token go on")
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(within):
		require.Fail(t, "the stream of a session that was ended goes on")
	}
}

func aChangeNeedsTheFormOfItsOwnSession(t *testing.T, s *service) {
	s.coupon("forged", 5, "")
	p, other := s.person(), s.person()
	p.signIn(admin)
	other.signIn(admin)
	csrf := func(p *person) string { return hidden.FindStringSubmatch(p.get("/console").text)[2] }
	for name, form := range map[string]url.Values{"none": {}, "empty": {"csrf": {""}}, "another's": {"csrf": {csrf(other)}}} {
		require.Equal(t, 403, p.post("/console/campaigns/forged/pause", form).status, name)
	}
	mine := url.Values{"csrf": {csrf(p)}}
	require.Equal(t, 403, p.post("/console/campaigns/forged/pause", mine, "Sec-Fetch-Site", "cross-site").status, "another site's page")
	require.Contains(t, s.api("GET", "/v1/campaigns/forged", ""), `"status":"open"`)
	require.Equal(t, 303, p.post("/console/campaigns/forged/pause", mine).status)
	require.Contains(t, s.api("GET", "/v1/campaigns/forged", ""), `"status":"paused"`)
}

func eachActionSaysWhatItWillDoAndDoesIt(t *testing.T, s *service) {
	s.coupon("spring", 1000, `,"per_user":2,"time_zone":"Europe/Berlin"`)
	p := s.person()
	p.signIn(admin)
	campaign := func() string { return s.api("GET", "/v1/campaigns/spring", "") }
	for _, c := range []struct{ path, says, then string }{
		{"pause", "refused as paused until you open", `"status":"paused"`},
		{"open", "The next claim is taken again", `"status":"open"`},
		{"restock?total=2500", "Total, units: from 1,000 to 2,500.", `"total":2500`},
		{"edit?per_user=3&per_user_per_day=1&low_stock_at=0", "A user may hold, units: from 2 to 3.", `"per_user":3`},
		{"edit?starts_at=2027-01-31T18:00&ends_at=", "Starts: from none to 2027-01-31 18:00.", `"starts_at":"2027-01-31T17:00:00.000Z"`},
		{"edit?starts_at=", "Starts: from 2027-01-31 18:00 to none.", `"version":7`},
		{"edit?limits=device:day:1,+user:hour:2", "Other limits: from none to device:day:1, user:hour:2.", `{"by":"user","per":"all","max":3},{"by":"user","per":"day","max":1},{"by":"device","per":"day","max":1,`},
		{"close", "can&#39;t be opened again", `"status":"closed"`},
	} {
		require.Contains(t, p.get("/console/campaigns/spring/"+c.path).text, c.says)
		got := p.act("/console/campaigns/spring/" + c.path)
		require.Equal(t, 303, got.status, got.text)
		verb, _, _ := strings.Cut(c.path, "?")
		require.Equal(t, "/console/campaigns/spring?done="+verb, got.header.Get("Location"))
		require.Contains(t, campaign(), c.then)
		after := p.get(got.header.Get("Location"))
		require.Contains(t, after.text, `role="status">The `)
		require.Contains(t, after.text, got.header.Get("X-Request-ID"), "the history names the request that changed it")
	}
	s.coupon("small", 10, "")
	s.claim("small", "ada", "bob", "cid")
	require.Contains(t, p.get("/console/campaigns/small/restock?total=2").text, "3 units claimed now, which is more")
	got := p.act("/console/campaigns/spring/open")
	require.Equal(t, 409, got.status, "the API's refusal")
	require.Contains(t, got.text, "The campaign is closed and can&#39;t be opened again.")
	got = p.act("/console/campaigns/spring/reconcile")
	require.Equal(t, 200, got.status)
	require.Contains(t, got.text, "The books agree.")
	require.Contains(t, p.act("/console/campaigns/spring/repair").text, "The books agree.")
	require.Equal(t, 404, p.get("/console/campaigns/spring/explode").status)
	require.Equal(t, 404, p.get("/console/campaigns/nowhere").status)
	for _, change := range []string{"total=many", "total=-1", "starts_at=soon", "limits=device:day"} {
		got := p.get("/console/campaigns/spring/restock?" + change)
		require.Equal(t, 422, got.status, change)
		require.NotContains(t, got.text, "What will happen")
	}
	require.Equal(t, 409, p.get("/console/campaigns/spring/close").status, "it is closed")
	require.Contains(t, p.get("/console/audit").text, "campaign.closed")
	require.Equal(t, 422, p.get("/console/audit?campaign_id=no+id").status, "which is known")
	require.Contains(t, p.get("/console/table?page=7&q=spring").text, "No campaign on this page.")
}

// The confirmation described another state of the campaign, so the change
// must be refused.
func aChangeOfSomebodyElseMeanwhileIsNotOverwritten(t *testing.T, s *service) {
	s.coupon("raced", 10, "")
	p := s.person()
	p.signIn(admin)
	form := p.form("/console/campaigns/raced/restock?total=20")
	s.api("PATCH", "/v1/campaigns/raced", `{"total":30}`)
	got := p.post("/console/campaigns/raced/restock", form)
	require.Equal(t, 412, got.status)
	require.Contains(t, got.text, "The campaign was changed since")
	require.Contains(t, got.text, "from 30 to 20.", "it says what would happen now")
	require.Contains(t, s.api("GET", "/v1/campaigns/raced", ""), `"total":30`)
	form = p.form("/console/campaigns/raced/pause")
	s.api("PATCH", "/v1/campaigns/raced", `{"total":40}`)
	for range 2 {
		require.Equal(t, 303, p.post("/console/campaigns/raced/pause", form).status, "a pause overwrites nothing")
	}
	require.Contains(t, s.api("GET", "/v1/campaigns/raced", ""), `"status":"paused"`)
}

func aViewerIsRefusedAndToldWhy(t *testing.T, s *service) {
	s.coupon("viewed", 10, "")
	p := s.person()
	p.signIn(viewer)
	form := url.Values{"csrf": {hidden.FindStringSubmatch(p.get("/console").text)[2]}, "total": {"5"}, "confirm": {"viewed"}}
	require.NotContains(t, p.get("/console/campaigns/viewed").text, "/campaigns/viewed/pause", "a viewer sees no buttons")
	require.Equal(t, 403, p.post("/console/new", url.Values{"csrf": form["csrf"], "id": {"mine"}, "kind": {"coupon"}, "total": {"1"}}).status)
	require.Equal(t, 403, p.get("/console/campaigns/viewed/packets?count=1").status)
	for _, verb := range []string{"close", "edit?total=5", "repair"} {
		for _, got := range []page{p.get("/console/campaigns/viewed/" + verb), p.post("/console/campaigns/viewed/"+verb, form)} {
			require.Equal(t, 403, got.status, verb)
			require.Contains(t, got.text, "This takes a token of the scope admin. The token that was sent has viewer.", verb)
		}
	}
	require.Contains(t, s.api("GET", "/v1/campaigns/viewed", ""), `"status":"open"`)
}

// Only an admin may do this.
func supportRedeemsAndReleases(t *testing.T, s *service) {
	s.coupon("support", 10, `,"hold_for":"1h"`)
	reader, p := s.person(), s.person()
	reader.signIn(viewer)
	p.signIn(admin)
	var pages []string
	for _, answer := range s.claim("support", "ada", "bob") {
		pages = append(pages, "/console/claims/"+idOf.FindStringSubmatch(answer)[1])
	}
	s.synced("support")
	require.Contains(t, p.get(pages[0]).text, "Redeem …")
	require.Equal(t, 403, reader.get(pages[0]+"/redeem?order_id=order-7").status)

	require.Contains(t, p.get(pages[0]+"/redeem?order_id=order-7").text, "belongs to the order “order-7”")
	got := p.act(pages[0] + "/redeem?order_id=order-7")
	require.Equal(t, 303, got.status, got.text)
	after := p.get(got.header.Get("Location")).text
	require.Contains(t, after, "By order order-7.")
	require.NotContains(t, after, "Redeem …", "it is done")
	require.Contains(t, p.act(pages[0]+"/release").text, "redeemed by order order-7", "the API's refusal")

	require.Contains(t, p.get(pages[0]+"/reopen").text, "does not belong to the order “order-7” any more")
	require.Equal(t, 303, p.act(pages[0]+"/reopen?reason=refunded").status)
	require.Contains(t, p.get(pages[0]).text, "Reopened")
	require.Equal(t, 303, p.act(pages[0]+"/extend?by=10m").status)
	require.Equal(t, 303, p.act(pages[0]+"/redeem?order_id=order-8").status)
	asked := p.form(pages[0] + "/reopen")
	s.api("POST", "/v1"+strings.TrimPrefix(pages[0], "/console")+"/reopen", `{"order_id":"order-8"}`)
	require.Equal(t, 303, p.act(pages[0]+"/redeem?order_id=order-9").status)
	p.post(pages[0]+"/reopen", asked) // in another tab, or a second time
	require.Contains(t, p.get(pages[0]).text, "By order order-9.", "no one was asked about this order")
	require.Contains(t, s.api("GET", "/v1/audit", ""), `"action":"claim.extended"`)

	require.Contains(t, p.get(pages[1]+"/release").text, "1 unit can be claimed again")
	require.Equal(t, 303, p.act(pages[1]+"/release?reason=a+mistake").status)
	require.Contains(t, p.get(pages[1]).text, "a mistake")
	require.Contains(t, s.api("GET", "/v1/campaigns/support/stock", ""), `"claimed":1`)
}

func aCampaignIsCreatedAndItsPacketsAreAdded(t *testing.T, s *service) {
	p := s.person()
	p.signIn(admin)
	require.Contains(t, p.get("/console").text, "/console/new")
	got := p.create("id", "drop", "kind", "coupon", "name", "Spring drop", "total", "many")
	require.Equal(t, 422, got.status)
	require.Contains(t, got.text, "not “many”")
	require.Contains(t, got.text, `value="Spring drop"`, "what was typed is kept")
	require.Contains(t, p.create("id", "a/b", "kind", "coupon", "total", "1").text, "id: ", "the API's refusal")
	got = p.create("id", "drop", "kind", "coupon", "name", "Spring drop", "total", "50", "per_user", "2", "hold_for", "15m", "hold_max", "20m",
		"starts_at", "2027-07-01T18:00", "time_zone", "Europe/Berlin")
	require.Equal(t, "/console/campaigns/drop?done=new", got.header.Get("Location"), got.text)
	require.Contains(t, p.get(got.header.Get("Location")).text, "The campaign is created.")
	drop := s.api("GET", "/v1/campaigns/drop", "")
	for _, want := range []string{`"name":"Spring drop"`, `"total":50`, `"per_user":2`, `"hold_for":"15m0s"`, `"hold_max":"20m0s"`, `"starts_at":"2027-07-01T16:00:00.000Z"`} {
		require.Contains(t, drop, want)
	}
	like := p.get("/console/new?like=drop").text
	require.Contains(t, like, `value="2027-07-01T18:00"`)
	require.NotContains(t, like, `value="drop"`)
	require.Contains(t, s.api("GET", "/v1/audit", ""), `"action":"campaign.created"`)

	require.Equal(t, 303, p.create("id", "rain", "kind", "packet", "currency", "EUR", "sender_id", "boss").status)
	const packets = "/console/campaigns/rain/packets?count=4&split=even&amount="
	require.Equal(t, 422, p.get(packets+"8,88").status)
	require.Contains(t, p.get(packets+"88.8").text, "88.80 EUR")
	form := p.form(packets + "88.8")
	for range 2 { // sent twice, added once
		got := p.post(packets, form)
		require.Equal(t, "/console/campaigns/rain?done=packets", got.header.Get("Location"), got.text)
	}
	rain := p.get("/console/campaigns/rain").text
	require.Contains(t, rain, `<td class="num">4</td><td class="num">0</td><td class="num">0</td><td class="num">88.80 EUR</td>`)
	require.Contains(t, s.api("GET", "/v1/campaigns/rain", ""), `"total":4`)
}

func aClaimIsFoundByItsIDItsUserAndItsOrder(t *testing.T, s *service) {
	s.coupon("found", 10, `,"hold_for":"15m"`)
	id := idOf.FindStringSubmatch(s.claim("found", "ada")[0])[1]
	p := s.person()
	p.signIn(viewer)
	for _, text := range []string{id, strings.ToUpper(id), url.QueryEscape("{" + id + "}")} {
		require.Equal(t, "/console/claims/"+id, p.get("/console/find?q="+text).header.Get("Location"), "synced or not")
	}
	s.synced("found")
	life := p.get("/console/claims/" + id).text
	require.Contains(t, life, "In MySQL")
	require.Contains(t, life, "Will expire")
	s.api("POST", "/v1/claims/"+id+"/redeem", `{"order_id":"order-7"}`)
	require.Contains(t, p.get("/console/find?q=ada").text, id)
	require.Contains(t, p.get("/console/find?q=order-7").text, id)
	require.Contains(t, p.get("/console/claims/"+id).text, "By order order-7.")
	require.Contains(t, p.get("/console/find?q=nobody").text, "No claim has this id")
	require.Contains(t, p.get("/console/find?q=..").text, "no path can carry")
	hostile := `<script>alert(1)</script>`
	require.NotContains(t, p.get("/console/find?q="+url.QueryEscape(hostile)).text, hostile)
}

// The events must be in order, of all claims of both, including parked ones.
func TestTheLifeOfAUserAndOfAnOrderIsTold(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s := serve(t, "DIBS_DATA_DIR="+folder)
	s.coupon("spring", 10, "")
	var ids []string
	for _, answer := range s.claim("spring", "ada", "ada", "bob") {
		ids = append(ids, idOf.FindStringSubmatch(answer)[1])
	}
	s.synced("spring")
	s.api("POST", "/v1/claims/"+ids[0]+"/redeem", `{"order_id":"order-7"}`)
	s.api("POST", "/v1/claims/"+ids[1]+"/release", `{"reason":"a mistake"}`)
	s.api("POST", "/v1/claims/"+ids[2]+"/redeem", `{"order_id":"order-7"}`)
	db := syncertest.OpenStore(t, sqlstore.Config{Path: filepath.Join(folder, "dibs.db")})
	require.NoError(t, db.Exec("INSERT INTO parked_events (id, campaign_id, user_id, reason, payload, parked_at) VALUES (?, 'spring', 'ada', ?, '{}', ?)",
		ids[1], "its seq is taken", "2099-01-01 00:00:00.000").Error)
	p := s.person()
	p.signIn(viewer)
	life := func(q string) []string {
		_, text, found := strings.Cut(p.get("/console/find?q="+q).text, "What happened, in order")
		require.True(t, found, q)
		var lives []string
		for _, line := range regexp.MustCompile(`<b>([^<]*)</b>.*?/console/claims/([^"]*)"`).FindAllStringSubmatch(text, -1) {
			lives = append(lives, fmt.Sprint(slices.Index(ids, line[2]), " ", line[1]))
		}
		return lives
	}
	ada := life("ada")
	require.Equal(t, "0 Claimed", ada[0])
	require.Subset(t, ada, []string{"1 Claimed", "0 In MySQL", "1 In MySQL", "0 Redeemed", "1 Released"})
	require.Equal(t, "1 Parked", ada[len(ada)-1])
	order := life("order-7")
	require.Subset(t, order, []string{"0 Claimed", "2 Claimed", "0 Redeemed", "2 Redeemed"})
	require.Contains(t, p.get("/console/trouble").text, "its seq is taken")

	require.NoError(t, db.Exec("INSERT INTO webhook_events (endpoint, campaign_id, no, event_id, type, at, payload, created_at)"+
		" VALUES ('mailer', 'spring', 1, 'e', 'claim.accepted', ?, '{}', ?)", "2026-01-01 00:00:00.000", "2026-01-01 00:00:00.000").Error)
	require.Regexp(t, `<td>mailer</td><td>1</td><td>\d.* ago</td><td>0</td>`, p.get("/console/trouble").text)
}

// The page must show running processes with role, version and start, and
// the settings without secrets.
func processesAndSettings(t *testing.T, s *service) {
	p := s.person()
	p.signIn(viewer)
	require.Eventually(t, func() bool {
		return regexp.MustCompile(`<tr><td>serve</td><td>syncer-1</td><td>[^<]+</td><td>[^<]+</td><td><time [^>]+>[^<]+</time>, [^<]+ ago</td><td><span class="good">runs`).
			MatchString(p.get("/console/processes").text)
	}, within, 20*time.Millisecond)
	text := p.get("/console/processes").text
	require.Regexp(t, `<code>DIBS_FLUSH_SIZE</code></td><td><code>1234</code>`, text)
	require.Contains(t, text, "DIBS_ADMIN_TOKEN")
	require.NotContains(t, text, admin)
}

func TestWithoutTokensNobodySignsIn(t *testing.T) {
	t.Parallel()
	s := serve(t, "DIBS_ADMIN_TOKEN=", "DIBS_VIEWER_TOKEN=", "DIBS_STOREFRONT_TOKEN=")
	s.coupon("spring", 10, "")
	p := s.person()
	root := p.get("/")
	require.Equal(t, 303, root.status)
	require.Equal(t, "/console", root.header.Get("Location"))
	require.Contains(t, s.api("GET", "/", ""), "not_found", "no browser asks")
	require.Equal(t, 200, p.get("/console").status)
	require.Equal(t, 303, p.act("/console/campaigns/spring/pause").status)
	require.Contains(t, s.api("GET", "/v1/campaigns/spring", ""), `"status":"paused"`)
	require.Equal(t, 404, serve(t, "DIBS_CONSOLE=off").person().get("/console").status)
}

// Forms must be accepted under the name in the address bar, however the
// proxy forwards it.
func TestTheConsoleBehindAProxy(t *testing.T) {
	t.Parallel()
	send := func(p *person, origin, host, forwarded string) int {
		headers := []string{"Origin", origin, "Host", host, "X-Forwarded-Host", forwarded}
		return p.post("/console/sign-in", url.Values{"token": {viewer}}, headers...).status
	}
	behind := serve(t, "DIBS_TRUSTED_PROXIES=127.0.0.0/8").person()
	alone := serve(t).person()
	for _, c := range []struct {
		origin, host, forwarded string
		want                    int
	}{
		{"https://shop.example", "shop.example", "", 303},
		{"https://shop.example", "shop.example:443", "", 303},
		{"https://shop.example:8443", "shop.example:8443", "", 303},
		{"https://evil.example", "shop.example", "", 403},
		{"https://shop.example", "shop.example:80", "", 403},
		{"null", "shop.example", "", 403},
	} {
		require.Equal(t, c.want, send(behind, c.origin, c.host, c.forwarded), c)
		require.Equal(t, c.want, send(alone, c.origin, c.host, c.forwarded), c)
	}
	for _, forwarded := range []string{"Shop.example:443", "shop.example, inner:8080"} {
		require.Equal(t, 303, send(behind, "https://shop.example", "127.0.0.1:8080", forwarded), forwarded)
		require.Equal(t, 403, send(alone, "https://shop.example", "127.0.0.1:8080", forwarded), "no one vouches for it")
		require.Equal(t, 403, send(behind, "https://evil.example", "evil.example", forwarded))
	}
	for proto, secure := range map[string]bool{"HTTPS": true, "https, http": true, "http, https": false} {
		cookie := behind.post("/console/sign-in", url.Values{"token": {viewer}}, "X-Forwarded-Proto", proto).header.Get("Set-Cookie")
		require.Equal(t, secure, strings.Contains(cookie, "; Secure"), proto)
		require.Contains(t, cookie, "SameSite=Lax", "a link from elsewhere, such as a chat, finds who is signed in")
	}
}

func theClaimsOfACampaignAreListed(t *testing.T, s *service) {
	s.coupon("listed", 2000, "")
	s.claim("listed", "ada", "bob", "=1+1")
	s.synced("listed")
	var claims []string
	for i := range 1200 {
		claims = append(claims, fmt.Sprintf(`{"campaign_id":"listed","user_id":"u-%d"}`, i))
	}
	for half := range slices.Chunk(claims, 600) {
		s.api("POST", "/v1/claims:batch", `{"claims":[`+strings.Join(half, ",")+`]}`)
	}
	s.synced("listed")
	p := s.person()
	p.signIn(viewer)
	first := p.get("/console/campaigns/listed/claims").text
	require.Contains(t, first, "u-1199")
	require.NotContains(t, first, ">ada<")
	older := regexp.MustCompile(`href="(\?[^"]*after=[^"]+)"`).FindStringSubmatch(first)
	require.NotNil(t, older)
	require.NotContains(t, p.get("/console/campaigns/listed/claims"+html.UnescapeString(older[1])).text, "u-1199")
	file := p.get("/console/campaigns/listed/claims.csv")
	require.Contains(t, file.header.Get("Content-Type"), "text/csv")
	require.Equal(t, 1+1203, strings.Count(file.text, "\n"), "all of them, beyond a page")
	require.Contains(t, file.text, ",ada,1,1,claimed,")
	require.Contains(t, file.text, ",'=1+1,1,", "a spreadsheet must not run it")
}
