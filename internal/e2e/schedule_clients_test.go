package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"dibs/models"
)

// asked is one claim that somebody wants, through all its tries. It belongs to one client.
type asked struct {
	drama    *drama
	user     string
	quantity int64
	key      string // "" is none: it is tried once
	tries    []try
	ends     []ending
}

// try is one request and its answer.
type try struct {
	begun, ended time.Time
	code         string // of the refusal; "unheard": no answer came
	claim        *models.Claim
	body         string // of the claim; of one in a batch, too
	replayed     bool
	batch        bool
}

// The codes of tries that nobody answered.
const (
	unheard   = "unheard"   // it may have been claimed
	unreached = "unreached" // not a byte was sent
)

// open tells whether another try may get another answer.
func (t *try) open() bool {
	return slices.Contains([]string{unheard, unreached, "unavailable", "outcome_unknown"}, t.code)
}

// doubtful tells whether the claim may have been made without anybody being told.
func (t *try) doubtful() bool { return t.code == unheard || t.code == "outcome_unknown" }

// last is the newest try.
func (a *asked) last() *try { return &a.tries[len(a.tries)-1] }

// journal is all that was asked.
type journal struct {
	mu  sync.Mutex
	all []*asked
}

func (j *journal) add(a *asked) *asked {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, a)
	return a
}

// storefront is one client: it asks, and asks again, until told to stop.
type storefront struct {
	h      *house
	n      int
	r      *rand.Rand
	client *http.Client
	mine   []*asked
	made   int
}

// callWithin is how long a storefront waits for an answer.
const callWithin = 10 * time.Second

func (h *house) newStorefront(n int) *storefront {
	transport := &http.Transport{MaxIdleConnsPerHost: 1}
	h.t.Cleanup(transport.CloseIdleConnections)
	return &storefront{h: h, n: n, r: rand.New(rand.NewPCG(h.plan.seed, 100+uint64(n))), client: &http.Client{Timeout: callWithin, Transport: transport}}
}

// run asks until stop is closed, and settles what is open then as its temper says.
func (s *storefront) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(ms(between(s.r, 1, 12))):
		}
		d := s.h.dramas[s.r.IntN(len(s.h.dramas))]
		if d.hushed() {
			continue
		}
		if s.r.IntN(12) == 0 {
			s.endOne()
			continue
		}
		switch n := s.r.IntN(20); {
		case n < 2 && len(s.mine) > 0: // once more, whatever was said
			if a := s.mine[s.r.IntN(len(s.mine))]; a.key != "" && !a.drama.hushed() && (a.last().claim != nil || a.last().open()) {
				s.try(a)
			}
		case n < 4:
			s.askMany(d, 2+s.r.IntN(12))
		default:
			s.ask(d)
		}
	}
}

// fresh is a new wish.
func (s *storefront) fresh(d *drama) *asked {
	s.made++
	a := &asked{drama: d, user: fmt.Sprintf("user-%d", s.r.IntN(40)), quantity: 1}
	if s.r.IntN(4) == 0 {
		a.quantity = between(s.r, 1, 3)
	}
	if d.Kind == packetKind {
		a.quantity = 1
	}
	if s.r.IntN(5) == 0 {
		a.user = fmt.Sprintf("once-%d-%d", s.n, s.made) // without a key the row is known by the user
	} else {
		a.key = fmt.Sprintf("key %d-%d", s.n, s.made)
	}
	s.mine = append(s.mine, s.h.journal.add(a))
	return a
}

// ask wants one claim, and tries again while that makes sense, more or less patiently.
func (s *storefront) ask(d *drama) {
	a := s.fresh(d)
	patience := s.r.IntN(6)
	for i := 0; ; i++ {
		s.try(a)
		if !a.last().open() || a.key == "" || i >= patience {
			return
		}
		time.Sleep(ms(between(s.r, 5, 60)))
	}
}

func (s *storefront) base() string { return s.h.apis[s.r.IntN(len(s.h.apis))].url }

// try sends one claim once.
func (s *storefront) try(a *asked) {
	t := try{begun: time.Now()}
	status, text, replayed, err := s.post(s.base()+"/v1/campaigns/"+a.drama.ID+"/claims", a.key, map[string]any{"user_id": a.user, "quantity": a.quantity})
	t.ended, t.replayed = time.Now(), replayed
	switch {
	case err != nil:
		t.code = unanswered(err)
	case status == http.StatusCreated:
		t.claim, t.body = new(models.Claim), string(bytes.TrimSpace(text))
		if json.Unmarshal(text, t.claim) != nil {
			t.claim, t.code = nil, "not a claim: "+t.body
		}
	default:
		t.code = codeIn(text)
	}
	a.tries = append(a.tries, t)
}

// askMany wants several claims in one request, and tries none again.
func (s *storefront) askMany(d *drama, n int) {
	var all []*asked
	var claims []map[string]any
	for range n {
		a := s.fresh(d)
		all = append(all, a)
		one := map[string]any{"campaign_id": d.ID, "user_id": a.user, "quantity": a.quantity}
		if a.key != "" {
			one["idempotency_key"] = a.key
		}
		claims = append(claims, one)
	}
	begun := time.Now()
	status, text, _, err := s.post(s.base()+"/v1/claims:batch", "", map[string]any{"claims": claims})
	var batch struct {
		Results []struct{ Claim, Problem json.RawMessage }
	}
	if err == nil && status == http.StatusOK && (json.Unmarshal(text, &batch) != nil || len(batch.Results) != n) {
		err = fmt.Errorf("%w: %s", errAnswer, text)
	}
	for i, a := range all {
		t := try{begun: begun, ended: time.Now(), batch: true}
		switch {
		case err != nil:
			t.code = unanswered(err)
		case status != http.StatusOK:
			t.code = codeIn(text)
		case batch.Results[i].Claim != nil:
			t.claim, t.body = new(models.Claim), string(batch.Results[i].Claim)
			if json.Unmarshal(batch.Results[i].Claim, t.claim) != nil {
				t.claim, t.code = nil, "not a claim: "+t.body
			}
		default:
			t.code = codeIn(batch.Results[i].Problem)
		}
		a.tries = append(a.tries, t)
	}
}

var (
	errAnswer = errors.New("an answer that is none")
	errUnsent = errors.New("not a byte was sent")
)

// unanswered is the code of a request without an answer.
func unanswered(err error) string {
	if errors.Is(err, errUnsent) {
		return unreached
	}
	if errors.Is(err, errAnswer) {
		return err.Error()
	}
	return unheard
}

func codeIn(body []byte) string {
	var p struct{ Code string }
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		return fmt.Sprintf("not a problem: %.200s", body)
	}
	return p.Code
}

func (s *storefront) post(url, key string, body any) (status int, text []byte, replayed bool, err error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return 0, nil, false, err
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(s.h.t.Context()), http.MethodPost, url, bytes.NewReader(encoded))
	if err != nil {
		return 0, nil, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	var sent atomic.Bool // not what the error says: net/http sends again by itself, and tells of the last try only
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}))
	res, err := s.client.Do(req)
	switch {
	case err != nil && !sent.Load():
		return 0, nil, false, fmt.Errorf("%w: %w", errUnsent, err)
	case err != nil:
		return 0, nil, false, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err = io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, text, res.Header.Get("Idempotent-Replayed") == "true", err
}

// drama is a campaign and what is known of its definition over time.
type drama struct {
	campaign

	hush atomic.Int64 // nobody claims before; unix nanoseconds

	mu     sync.Mutex
	spells map[string][]spell // by field
	added  int64              // packets that are surely there
	doubt  packetList         // and those that may be
}

// spell is a value of a field, from when it may have been in force until when it surely was not any more.
type spell struct {
	value      int64
	from, till time.Time // till zero: it may be still
}

func (d *drama) hushed() bool { return time.Now().UnixNano() < d.hush.Load() }
