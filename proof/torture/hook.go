package torture

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"dibs/internal/testenv"
	"dibs/models"
)

const (
	hookKey   = "0123456789abcdef0123456789abcdef"
	hookMood  = time.Second     // for so long the receiver is of one mood
	hookHangs = 3 * time.Second // before it answers 500
)

// hook is a receiver of webhooks that dies, answers 500 and hangs, unless it is
// calm.
type hook struct {
	*httptest.Server

	file string // of endpoints
	calm atomic.Bool

	mu    sync.Mutex
	taken map[string]bool // ids of claims
	// of the claims of a campaign and shard that were taken the first time
	last  map[[2]string]hookPlace
	wrong []string // since the last check
}

// hookPlace is where a claim is in the order of its shard.
type hookPlace struct{ epoch, seq int64 }

func newHook(on *testenv.Program) (*hook, error) {
	h := &hook{taken: map[string]bool{}, last: map[[2]string]hookPlace{}}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	on.Cleanup(h.Close)
	h.file = filepath.Join(on.TempDir(), "endpoints.json")
	text := fmt.Sprintf(`{"endpoints":[{"name":"hook","url":%q,"secrets":["whsec_%s"],"events":["claim.accepted"]}]}`,
		h.URL, base64.StdEncoding.EncodeToString([]byte(hookKey)))
	return h, wrap(os.WriteFile(h.file, []byte(text), 0o600))
}

func (h *hook) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender is gone
	}
	if !h.calm.Load() {
		switch time.Now().UnixNano() / int64(hookMood) % 8 {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case 3:
			wait(r.Context(), hookHangs)
			w.WriteHeader(http.StatusInternalServerError)
			return
		case 5:
			panic(http.ErrAbortHandler) // its connection ends
		}
	}
	var message struct {
		Data models.Event `json:"data"`
	}
	mac := hmac.New(sha256.New, []byte(hookKey))
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), body)
	signed := r.Header.Get("Webhook-Signature") == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := json.Unmarshal(body, &message); err != nil || !signed || message.Data.ID != r.Header.Get("Webhook-Id") {
		h.wrong = append(h.wrong, fmt.Sprintf("signed %t, id %q: %s", signed, r.Header.Get("Webhook-Id"), body))
	}
	h.take(&message.Data)
}

// take notes a claim that came the first time, and one that comes before
// another that was made earlier.
func (h *hook) take(e *models.Event) {
	if h.taken[e.ID] {
		return
	}
	h.taken[e.ID] = true
	shard := [2]string{e.CampaignID, strconv.Itoa(e.Shard)}
	is := hookPlace{e.Epoch, e.Seq}
	if was := h.last[shard]; cmp.Or(cmp.Compare(is.epoch, was.epoch), cmp.Compare(is.seq, was.seq)) <= 0 {
		h.wrong = append(h.wrong, fmt.Sprintf("claim %d of %s came after claim %d", is.seq, strings.Join(shard[:], "#"), was.seq))
	}
	h.last[shard] = is
}

// owesWebhooks reports whether the receiver gets every claim of the round:
// where Redis or MySQL loses what was written, events may go with it.
func (rd *round) owesWebhooks() bool {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	return len(rd.losses) == 0 && !rd.undoing
}

// undelivered counts the claims of a campaign that the receiver does not have.
func (rd *round) undelivered(ctx context.Context, c *campaign) (missing int, err error) {
	err = rd.w.each(ctx, "SELECT id FROM "+everyClaim+" c WHERE campaign_id = ?", []any{c.id}, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		rd.w.hook.mu.Lock()
		defer rd.w.hook.mu.Unlock()
		if !rd.w.hook.taken[id] {
			missing++
		}
		return err
	})
	return missing, err
}

// checkWebhooks: what the receiver got was signed, under its own id, and the
// claims of a shard in order.
func (rd *round) checkWebhooks() {
	rd.w.hook.mu.Lock()
	wrong := rd.w.hook.wrong
	rd.w.hook.wrong = nil
	rd.w.hook.mu.Unlock()
	if rd.owesWebhooks() && len(wrong) > 0 {
		rd.brokenf("webhooks: %d faults, the first: %s", len(wrong), wrong[0])
	}
}
