package claiming

import (
	"net/http"
	"net/url"
	"strings"

	"dibs/models"
)

// Path is the path of a claim. A rush consists of its requests, and the
// ServeMux takes as long to find it as all the rest of a sold-out refusal
// takes.
const (
	Path      = pathStart + "{id}" + pathEnd
	pathStart = "/v1/campaigns/"
	pathEnd   = "/claims"
)

// FastPath gives each request that is certainly a POST of Path to claim,
// and all others to mux, which finds the same.
func FastPath(claim http.HandlerFunc, mux http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && campaignInPath(r.URL) != "" {
			claim(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// campaignInPath is the campaign id in a Path that needs neither
// unescaping nor cleaning; "" for any other path.
func campaignInPath(u *url.URL) string {
	id, start := strings.CutPrefix(u.Path, pathStart)
	id, end := strings.CutSuffix(id, pathEnd)
	if !start || !end || u.RawPath != "" || id == "." || id == ".." || models.CheckCampaignID(id) != nil {
		return ""
	}
	return id
}

// campaignOf is the campaign of a POST of Path. It may be no id at all.
func campaignOf(r *http.Request) string {
	if id := campaignInPath(r.URL); id != "" {
		return id
	}
	return r.PathValue("id")
}
