package webhooks_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/internal/webhooks"
	"dibs/models/event"
	"dibs/models/stored"
)

const examples = "../../docs/examples/webhooks"

// docs/webhooks.md's receivers must accept each delivery once,
// and none that is forged or stale.
func TestReceiver_Python(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	require.NoError(t, err, "python3 is not installed: docs/examples/webhooks/receiver.py can't be tested without it")
	tryReceiver(t, python, filepath.Join(examples, "receiver.py"))
}

func TestReceiver_Go(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "receiver")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, examples).CombinedOutput()
	require.NoError(t, err, "%s", out)
	tryReceiver(t, binary)
}

func TestReceiver_TypeScript(t *testing.T) {
	t.Parallel()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("TYPESCRIPT RECEIVER NOT TRIED: there is no npm on this machine")
	}
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(examples, "receiver.ts"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "receiver.ts"), text, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", "typescript@5", "@types/node@20")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("TYPESCRIPT RECEIVER NOT TRIED: npm can't get the compiler: %v\n%s", err, out)
	}
	compile := exec.CommandContext(ctx, "npx", "tsc", "--strict", "--module", "nodenext", "--target", "es2022", "receiver.ts")
	compile.Dir = dir
	out, err := compile.CombinedOutput()
	require.NoError(t, err, "%s", out)
	tryReceiver(t, "node", filepath.Join(dir, "receiver.js"))
}

func tryReceiver(t *testing.T, name string, args ...string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), name, append(args, "127.0.0.1:0")...)
	run.Env = append(os.Environ(), "WEBHOOK_SECRET="+newSecret)
	var said testenv.Buffer
	run.Stderr = &said
	stdout, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
	})
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	line := func() string {
		select {
		case l := <-lines:
			return l
		case <-time.After(time.Minute):
			require.FailNow(t, "the receiver says nothing", "%s", said.String())
			return ""
		}
	}
	addr, listens := strings.CutPrefix(line(), "listening on ")
	require.True(t, listens)
	url := "http://" + addr + "/hook"

	db := syncertest.OpenServer(t)
	require.NoError(t, db.Create(&stored.WebhookEvent{ // parked by an earlier process
		Endpoint: "shop", CampaignID: "spring", No: 1, EventID: "spring-0", Type: event.ClaimAccepted, At: time.Now().UTC(), Payload: []byte(`{}`),
		CreatedAt: time.Now().UTC(), ParkedAt: new(time.Now().UTC()),
	}).Error)
	p := start(t, webhooks.Config{DB: db, Endpoints: fixed(endpoints(t, endpoint("shop", url)))})
	p.submit("spring", 1, 3)
	require.Equal(t, "missing before the next: 1", line())
	for seq := 1; seq <= 3; seq++ {
		require.Equal(t, fmt.Sprintf("claim.accepted spring %d", seq), line())
	}

	key := []byte("abcdefghijabcdefghijabcdefghijab")
	body := `{"type":"claim.accepted","data":{"campaign_id":"spring","seq":4}}`
	post := func(id string, at time.Time, signature string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		req.Header.Set("Webhook-Id", id)
		req.Header.Set("Webhook-Timestamp", fmt.Sprint(at.Unix()))
		req.Header.Set("Webhook-Signature", signature)
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	now, stale := time.Now(), time.Now().Add(-10*time.Minute)
	require.Equal(t, 401, post("x", now, webhooks.Sign([]byte("another key of thirty-two bytes!"), "x", now, []byte(body))))
	require.Equal(t, 401, post("x", stale, webhooks.Sign(key, "x", stale, []byte(body))))
	require.Equal(t, 401, post("y", now, webhooks.Sign(key, "x", now, []byte(body))))
	require.Equal(t, 401, post("x", now, ""))
	for range 2 { // once
		require.Equal(t, 204, post("spring-4", now, "v1,bm9uZQ== "+webhooks.Sign(key, "spring-4", now, []byte(body))))
	}
	require.Equal(t, 204, post("spring-5", now, webhooks.Sign(key, "spring-5", now, []byte(body))))
	require.Equal(t, "claim.accepted spring 4", line())
	require.Equal(t, "claim.accepted spring 4", line(), "of another id: the same body")
}
