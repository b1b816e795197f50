package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"dibs/internal/crowd"
	"dibs/models"
)

// request is one wanted claim with all its tries. It belongs to
// one client until the round ends.
type request struct {
	c        *campaign
	user     string
	quantity int64
	key      string
	tries    []try
	ends     []ending
}

type try struct {
	started, ended time.Time
	code           string // of the refusal or of no reply; "" is a claim
	claim          *models.Claim
	body           string
	replayed       bool
	batch          bool
}

// ending is one request to release or redeem a claim.
type ending struct {
	status models.ClaimStatus // wanted
	code   string             // "" if done
}

// final reports whether another try would change nothing.
func (w *request) final() bool { return certain(w.last().code) || w.key == "" }

// rests reports whether its campaign or shard gets no claims now.
func (w *request) rests() bool { return w.c.closing.Load() || w.c.rests(w.user) }

// last returns the latest try.
func (w *request) last() *try { return &w.tries[len(w.tries)-1] }

// clients is the number of concurrent clients.
const clients = 10

// client claims and retries until stopped. It uses one API
// process until that fails, then another.
type client struct {
	*caller

	w     *world
	round *round
	name  string
	r     *rand.Rand
	api   int
	mine  []*request
	made  int
	shard int         // whose users it claims for; 0 is any
	ends  chan func() // redeems and releases run beside the claims, as they depend on MySQL
}

func (rd *round) newClient(name string, stream uint64) *client {
	return &client{caller: newCaller(), w: rd.w, round: rd, name: name, r: rd.rand(stream), api: int(stream % 2)}
}

// run claims until ctx ends, and waits for its last request.
func (c *client) run(ctx context.Context) {
	defer c.close()
	c.ends = make(chan func(), 1)
	var ender sync.WaitGroup
	ender.Go(func() {
		for end := range c.ends {
			end()
		}
	})
	defer ender.Wait()
	defer close(c.ends)
	for ctx.Err() == nil {
		switch n := c.r.IntN(24); {
		case n < 4:
			c.endOne()
		case n < 6 && len(c.mine) > 0: // once more, whatever the reply was
			if one := c.mine[c.r.IntN(len(c.mine))]; one.key != "" && !one.rests() && (one.last().claim != nil || !certain(one.last().code)) {
				c.try(one)
			}
		case n < 8:
			c.askMany(c.pick(), 2+c.r.IntN(8))
		default:
			c.ask(ctx, c.pick())
		}
		wait(ctx, ms(between(c.r, 2, 24)))
	}
}

// pick draws a campaign to claim from. At least one always gets a rush.
func (c *client) pick() *campaign {
	for {
		one := c.round.campaigns[c.r.IntN(len(c.round.campaigns))]
		if !one.closing.Load() && (one.claims == rush || one.claims == quiet && c.r.IntN(quietOneIn) == 0) {
			return one
		}
	}
}

func (c *client) asked() *part { return pick(c.w.apis, c.api) }

func (c *client) base() string { return c.asked().frontURL }

// leave switches to another API process after one could not reply.
func (c *client) leave(code string) {
	if !certain(code) {
		c.api++
	}
}

func (c *client) fresh(of *campaign) *request {
	c.made++
	one := &request{c: of, quantity: 1, key: fmt.Sprintf("%s %s %d", of.id, c.name, c.made)}
	if c.r.IntN(4) == 0 && of.has(kindUnits) {
		one.quantity = between(c.r, 1, 3)
	}
	user := func() string { return fmt.Sprintf("user-%d", c.r.IntN(of.users)) }
	if c.r.IntN(6) == 0 { // without a key the row is identified by the user
		one.key = ""
		user = func() string {
			c.made++
			return fmt.Sprintf("once %s %d", c.name, c.made)
		}
	}
	one.user = user()
	for of.rests(one.user) {
		one.user = user()
	}
	c.mine = append(c.mine, one)
	of.add(one)
	return one
}

// ask makes one claim, and retries while that makes sense, more
// or less patiently.
func (c *client) ask(ctx context.Context, of *campaign) {
	one := c.fresh(of)
	for patience := c.r.IntN(6); ; patience-- {
		c.try(one)
		if one.final() || patience <= 0 || ctx.Err() != nil {
			return
		}
		wait(ctx, ms(between(c.r, 5, 60)))
	}
}

func (w *request) body() map[string]any {
	body := map[string]any{"user_id": w.user, "quantity": w.quantity}
	if subjects := w.c.subjects(w.user); subjects != nil {
		body["subjects"] = subjects
	}
	return body
}

// try sends one claim once.
func (c *client) try(one *request) {
	t := try{started: time.Now()}
	r := c.send(c.w.ctx, http.MethodPost, c.base()+"/v1/campaigns/"+one.c.id+"/claims", one.key, one.body())
	t.ended = time.Now()
	t.code = r.code
	t.replayed = r.replayed
	if t.code == "" {
		t.take(r.body)
		if !t.replayed { // a replay works even if Redis takes no writes
			c.asked().ready.claimed(one.c.id, t.started, t.ended)
		}
	}
	if t.code == unavailable || t.code == outcomeUnknown {
		c.asked().ready.refused(one.c.id, t.ended)
	}
	c.leave(t.code)
	c.book(one, &t)
}

// book records a try. A second claim for one key is reported at once.
func (c *client) book(one *request, t *try) {
	c.round.gauge.note(one.c.id, t.code, t.ended)
	for i := range one.tries {
		if before := &one.tries[i]; before.claim != nil && t.claim != nil && before.claim.ID != t.claim.ID && !c.round.excused(before.ended) {
			c.round.brokenf("I4: %s of %s was answered %s, then %s", one.user, one.c.id, before.body, t.body)
		}
	}
	one.tries = append(one.tries, *t)
}

func (t *try) take(body []byte) {
	t.claim = new(models.Claim)
	t.body = string(body)
	if json.Unmarshal(body, t.claim) != nil || t.claim.ID == "" {
		t.claim = nil
		t.code = "not a claim: " + t.body
	}
}

// askMany makes several claims in one request, without retries.
func (c *client) askMany(of *campaign, n int) {
	many := make([]*request, n)
	claims := make([]map[string]any, n)
	for i := range many {
		many[i] = c.fresh(of)
		claims[i] = many[i].body()
		claims[i]["campaign_id"] = of.id
		if many[i].key != "" {
			claims[i]["idempotency_key"] = many[i].key
		}
	}
	started := time.Now()
	r := c.send(c.w.ctx, http.MethodPost, c.base()+"/v1/claims:batch", "", map[string]any{"claims": claims})
	var batch struct {
		Results []struct {
			Claim   json.RawMessage `json:"claim"`
			Problem json.RawMessage `json:"problem"`
		} `json:"results"`
	}
	if r.code == "" && (json.Unmarshal(r.body, &batch) != nil || len(batch.Results) != n) {
		r.code = fmt.Sprintf("not a batch: %.200s", r.body)
	}
	c.leave(r.code)
	for i, one := range many {
		t := try{started: started, ended: time.Now(), batch: true, code: r.code}
		switch {
		case r.code != "":
		case batch.Results[i].Claim != nil:
			t.take(batch.Results[i].Claim)
		default:
			t.code = crowd.CodeOf(batch.Results[i].Problem)
		}
		c.book(one, &t)
	}
}

// endOne releases or redeems a claim known to this client,
// sometimes again or the other way.
func (c *client) endOne() {
	if len(c.mine) == 0 {
		return
	}
	one := c.mine[c.r.IntN(len(c.mine))]
	// a packet is credited as it is claimed
	if one.last().claim == nil || one.c.packets || one.rests() {
		return
	}
	wanted := models.ClaimReleased
	base := c.base()
	claim := one.last().claim.ID
	if c.r.IntN(4) == 0 {
		wanted = models.ClaimRedeemed
	}
	select {
	case c.ends <- func() { c.end(one, base, claim, wanted) }:
	default: // the last one is in progress
	}
}

func (c *client) end(one *request, base, claim string, wanted models.ClaimStatus) ending {
	verb := "release"
	body := map[string]any{"reason": "changed my mind"}
	if wanted == models.ClaimRedeemed {
		verb = "redeem"
		body = map[string]any{"order_id": "order of " + one.user}
	}
	r := c.send(c.w.ctx, http.MethodPost, base+"/v1/claims/"+claim+"/"+verb, "", body)
	one.ends = append(one.ends, ending{wanted, r.code})
	return one.ends[len(one.ends)-1]
}
