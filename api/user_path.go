package api

import (
	"net/http"
	"strings"
)

// A user may be called "/". ServeMux takes a segment that unescapes to that for the end of a path, so this one path is found
// without it.
const (
	userClaimsPath = "/v1/users/{user_id}/claims"
	slashUser      = "/"
)

// slashUserFirst hands what surely asks for the claims of the user "/" to list, and the rest to mux.
func slashUserFirst(list http.HandlerFunc, mux http.Handler) http.Handler {
	lower, upper := strings.Replace(userClaimsPath, "{user_id}", "%2f", 1), strings.Replace(userClaimsPath, "{user_id}", "%2F", 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if raw := r.URL.RawPath; raw != "" && (raw == lower || raw == upper) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			r.SetPathValue("user_id", slashUser)
			list(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
