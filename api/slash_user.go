package api

import (
	"net/http"
	"strings"
)

// A user's id may be "/". ServeMux matches a segment that unescapes to it
// as the end of the path. So that one path is matched separately.
const (
	userClaimsPath = "/v1/users/{user_id}/claims"
	slashUser      = "/"
)

// routeSlashUserID sends requests for the claims of user "/" to list, and
// all others to mux.
func routeSlashUserID(list http.HandlerFunc, mux http.Handler) http.Handler {
	lower := strings.Replace(userClaimsPath, "{user_id}", "%2f", 1)
	upper := strings.Replace(userClaimsPath, "{user_id}", "%2F", 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if raw := r.URL.RawPath; raw != "" && (raw == lower || raw == upper) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			r.SetPathValue("user_id", slashUser)
			list(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
