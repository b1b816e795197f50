package claiming

import (
	"net/http"
	"net/url"
	"strings"

	"dibs/models"
)

// The route that a rush is full of is found without the ServeMux, which takes as long as all that a sold-out campaign's
// refusal needs beside it.
const (
	Path           = "/v1/campaigns/{id}/claims"
	claimPathStart = "/v1/campaigns/"
	claimPathEnd   = "/claims"
)

// ClaimsFirst hands what is surely a POST of claimPath to claim, and the rest to mux, which would find the same.
func ClaimsFirst(claim http.HandlerFunc, mux http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && plainClaimPath(r.URL) != "" {
			claim(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// plainClaimPath returns the campaign id of a claimPath that needs neither unescaping nor cleaning; "" is anything else.
func plainClaimPath(u *url.URL) string {
	id, start := strings.CutPrefix(u.Path, claimPathStart)
	id, end := strings.CutSuffix(id, claimPathEnd)
	if !start || !end || u.RawPath != "" || id == "." || id == ".." || models.CheckCampaignID(id) != nil {
		return ""
	}
	return id
}

// claimedCampaign is the campaign of a POST of claimPath, which may be no id at all.
func claimedCampaign(r *http.Request) string {
	if id := plainClaimPath(r.URL); id != "" {
		return id
	}
	return r.PathValue("id")
}
