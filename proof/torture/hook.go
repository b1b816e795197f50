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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"dibs/internal/testkit/testenv"
	"dibs/models/event"
)

const (
	hookKey   = "0123456789abcdef0123456789abcdef"
	hookMood  = time.Second     // how long the receiver keeps one behaviour
	hookHangs = 3 * time.Second // before a reply of 500
)

// hook is a webhook receiver that dies, replies 500 and stalls, unless calm.
type hook struct {
	*httptest.Server

	file string // the endpoints file
	calm atomic.Bool

	mu    sync.Mutex
	taken map[string]bool // ids of claims
	// of claims first received, by campaign and shard
	last  map[[2]string]hookPlace
	wrong []hookFault // since the last check
}

// hookFault is what was wrong with an event of a campaign.
type hookFault struct{ campaignID, what string }

// hookPlace is a claim's position in its shard's order.
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
		return // the sender has ended
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
		Data event.Event `json:"data"`
	}
	mac := hmac.New(sha256.New, []byte(hookKey))
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), body)
	signed := r.Header.Get("Webhook-Signature") == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := json.Unmarshal(body, &message); err != nil || !signed || message.Data.ID != r.Header.Get("Webhook-Id") {
		what := fmt.Sprintf("signed %t, id %q: %s", signed, r.Header.Get("Webhook-Id"), body)
		h.wrong = append(h.wrong, hookFault{message.Data.CampaignID, what})
	}
	h.take(&message.Data)
}

// take records a new claim, and a fault if an earlier one comes
// after a later one.
func (h *hook) take(e *event.Event) {
	if h.taken[e.ID] {
		return
	}
	h.taken[e.ID] = true
	shard := [2]string{e.CampaignID, strconv.Itoa(e.Shard)}
	is := hookPlace{e.Epoch, e.Seq}
	if was := h.last[shard]; cmp.Or(cmp.Compare(is.epoch, was.epoch), cmp.Compare(is.seq, was.seq)) <= 0 {
		what := fmt.Sprintf("claim %d of %s came after claim %d", is.seq, strings.Join(shard[:], "#"), was.seq)
		h.wrong = append(h.wrong, hookFault{e.CampaignID, what})
	}
	h.last[shard] = is
}

// owesWebhooks reports whether the receiver must get every claim
// of the round: events may be lost with data of Redis or MySQL.
func (rd *round) owesWebhooks() bool {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	return len(rd.losses) == 0 && !rd.undoing
}

// undelivered counts a campaign's claims that the receiver lacks.
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

// checkWebhooks checks that each delivery was signed, under its
// own id, and each shard's claims were in order. Events of earlier
// rounds may come late, after losses that are of no concern here.
func (rd *round) checkWebhooks() {
	rd.w.hook.mu.Lock()
	wrong := slices.DeleteFunc(rd.w.hook.wrong, func(f hookFault) bool {
		return f.campaignID != "" && !slices.ContainsFunc(rd.campaigns, func(c *campaign) bool { return c.id == f.campaignID })
	})
	rd.w.hook.wrong = nil
	rd.w.hook.mu.Unlock()
	if rd.owesWebhooks() && len(wrong) > 0 {
		rd.brokenf("webhooks: %d faults, the first: %s", len(wrong), wrong[0].what)
	}
}
