// Command webhooks is a receiver of Dibs' webhooks: it verifies the
// signature, handles each event once, and answers.
//
//	WEBHOOK_SECRET=whsec_… go run ./docs/examples/webhooks 127.0.0.1:9000
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tolerance = 5 * time.Minute // an older message may be one that someone recorded
	bodyMax   = 1 << 20
)

// delivery is the body of a request.
type delivery struct {
	Type string `json:"type"`
	Data struct {
		CampaignID string `json:"campaign_id"`
		Seq        int64  `json:"seq"`
	} `json:"data"`
	Gap *struct {
		Events int64 `json:"events"`
	} `json:"gap"`
}

// verified reports whether one of the signatures is of this body, by the
// secret.
func verified(key, body []byte, h http.Header) bool {
	id := h.Get("Webhook-Id")
	sent := h.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, sent, body)
	for signature := range strings.FieldsSeq(h.Get("Webhook-Signature")) {
		coded, known := strings.CutPrefix(signature, "v1,")
		got, err := base64.StdEncoding.DecodeString(coded)
		if known && err == nil && hmac.Equal(got, mac.Sum(nil)) {
			return true
		}
	}
	return false
}

func main() {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"))
	if err != nil || len(key) == 0 || len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: WEBHOOK_SECRET=whsec_… webhooks ADDRESS")
		os.Exit(2)
	}
	var mu sync.Mutex
	// keep the ids in your database, in the transaction that handles the
	// event
	seen := map[string]bool{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
		if err != nil || !verified(key, body, r.Header) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var d delivery
		if err := json.Unmarshal(body, &d); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if id := r.Header.Get("Webhook-Id"); !seen[id] { // the same event may come again
			if d.Gap != nil {
				fmt.Println("missing before the next:", d.Gap.Events)
			}
			fmt.Println(d.Type, d.Data.CampaignID, d.Data.Seq)
			seen[id] = true
		}
		w.WriteHeader(http.StatusNoContent) // only now: any other answer has the event come again
	})
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("listening on", listener.Addr())
	server := &http.Server{Handler: handler, ReadTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, server.Serve(listener))
	os.Exit(1)
}
