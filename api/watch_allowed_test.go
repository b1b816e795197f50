package api_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/auth"
	"dibs/internal/apitest"
)

// A stream must end with its token: when it is revoked, expires, or may no
// longer watch.
func TestWatch_EndsWithItsToken(t *testing.T) {
	t.Parallel()
	line := func(name, role, token string, until time.Time) string {
		text, err := auth.Line(name, role, token, until)
		require.NoError(t, err)
		return text + "\n"
	}
	for what, then := range map[string]string{
		"taken away": "", "expires": "same", "demoted": line("eve", "storefront", "t0ken", time.Time{}),
		"control": line("eve", "viewer", "t0ken", time.Time{}),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "tokens")
				until := time.Time{}
				if then == "same" {
					until = time.Now().Add(25 * time.Second)
				}
				require.NoError(t, os.WriteFile(file, []byte(line("eve", "viewer", "t0ken", until)), 0o600))
				h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 3)), api.Config{Tokens: api.Tokens{Admin: "adm1n", File: file}})
				r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/watch", nil)
				r.Header.Set("Authorization", "Bearer t0ken")
				ended := make(chan struct{})
				w := httptest.NewRecorder()
				go func() {
					defer close(ended)
					h.ServeHTTP(w, r)
				}()
				<-time.After(25 * time.Second)
				if then != "same" {
					require.NoError(t, os.WriteFile(file, []byte(then), 0o600))
				}
				select {
				case <-ended:
					require.NotEqual(t, "control", what)
				case <-time.After(11 * time.Second):
					require.Equal(t, "control", what, "the stream goes on")
				}
			})
		})
	}
}
