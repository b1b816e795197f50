package form

import (
	"net/http"
	"net/url"
	"strings"

	"dibs/models"
)

// Path is the path of a claim, by far the most frequent request in a rush.
// The ServeMux takes as long to match it as the rest of a sold-out refusal.
const (
	Path      = pathStart + "{id}" + pathEnd
	pathStart = "/v1/campaigns/"
	pathEnd   = "/claims"
)

// FastPath sends each request that is certainly a POST of Path to
// claim, and all others to mux. The mux would choose the same handler.
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

// CampaignOf is the campaign of a POST of Path. The id may be invalid.
func CampaignOf(r *http.Request) string {
	if id := campaignInPath(r.URL); id != "" {
		return id
	}
	return r.PathValue("id")
}
