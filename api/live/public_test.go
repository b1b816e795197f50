package live_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api/live"
	"dibs/internal/testkit/apitest"
	"dibs/lua"
	"dibs/models"
)

// public reads a campaign's public page.
func (r *rig) public(id string) (status int, got struct {
	Left      string
	Remaining *int64
	StartsAt  *time.Time `json:"starts_at"`
}) {
	w := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.SetPathValue("id", id)
	status = r.GetPublic(w, req)
	_ = json.Unmarshal(w.Body.Bytes(), &got)
	return status, got
}

func TestThePublicReadsWhatItMay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(time.Hour)
		r := newRig(t,
			models.Campaign{ID: "count", Total: 100, Public: models.PublicCount, StartsAt: &at},
			models.Campaign{ID: "level", Total: 100, Public: models.PublicLevel, LowStockAt: 50},
			models.Campaign{ID: "secret", Total: 100})
		status, _ := r.public("secret")
		require.Equal(t, 404, status)
		status, _ = r.public("nowhere")
		require.Equal(t, 404, status)
		left := func(id string) string {
			pass(live.Every)
			_, _ = r.public(id)
			synctest.Wait() // the first request gets the old page
			_, got := r.public(id)
			return got.Left
		}
		require.Equal(t, "many", left("level"))
		r.claim("level", 50)
		require.Equal(t, "few", left("level"))
		r.claim("level", 50)
		require.Equal(t, "none", left("level"))
		require.Equal(t, "many", left("count"))
		r.claim("count", 90)
		require.Equal(t, "few", left("count"), "a tenth")
		_, got := r.public("count")
		require.EqualValues(t, 10, *got.Remaining)
		require.True(t, at.Equal(*got.StartsAt))
		_, got = r.public("level")
		require.Nil(t, got.Remaining)
	})
}

// Any number of readers must cost one read a second. The pages must last
// for a minute without the servers.
func TestACrowdOfReadersAsksNoServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, models.Campaign{ID: "c", Total: 100, Public: models.PublicCount})
		r.claim("c", 1)
		for range 10 {
			for range 1000 {
				status, _ := r.public("c")
				require.Equal(t, 200, status)
			}
			synctest.Wait()
			pass(live.Every)
		}
		require.LessOrEqual(t, r.reads(), 11, "one a turn, and the first")

		r.claim("c", 1)
		r.change(func(fake *apitest.Fake) { fake.Fail = errors.New("mysql is away") })
		_, _ = r.public("c")
		synctest.Wait()
		_, got := r.public("c")
		require.EqualValues(t, 98, *got.Remaining, "Redis goes on")
		r.change(func(fake *apitest.Fake) { fake.RedisFails = lua.ErrUnavailable })
		pass(50 * time.Second)
		status, got := r.public("c")
		require.Equal(t, 200, status)
		require.EqualValues(t, 98, *got.Remaining, "as it was")
		pass(20 * time.Second)
		status, _ = r.public("c")
		require.Equal(t, 503, status)
	})
}
