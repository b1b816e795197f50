package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"dibs/api/console/health"
	"dibs/api/console/signin"
	"dibs/api/console/words"
	"dibs/models"
	"dibs/models/stored"
)

// foundMax bounds the claims of a user or an order on a page.
const foundMax = 50

const livesMax = 20

type findPage struct {
	Query    string
	OfUser   []models.Claim
	OfOrder  []stored.ClaimRow
	Life     []moment // of all these claims
	Problems []string // sources that didn't answer
}

type userClaims struct {
	Claims []models.Claim `json:"claims"`
}

// getFind finds a claim, a user or an order by id. A claim's id redirects
// to its page. "Nothing found" needs an answer from every source.
func (c *Console) getFind(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	page := findPage{Query: strings.TrimSpace(r.URL.Query().Get("q"))}
	id, err := models.UserID(page.Query) // or an order's
	if err != nil {
		if page.Query != "" {
			page.Problems = append(page.Problems, "No user or order: the id "+strings.TrimPrefix(err.Error(), models.ErrID.Error()+": ")+".")
		}
		c.show(w, s, http.StatusOK, "find", page)
		return
	}
	var all errgroup.Group
	var user health.Asked[userClaims]
	var order health.Asked[[]stored.ClaimRow]
	claim := health.Asked[bool]{Known: true}
	claimID, err := uuid.Parse(page.Query) // also in capitals, or in braces
	if err == nil {
		health.Ask(r.Context(), &all, &claim, func(context.Context) (bool, error) {
			_, p := c.ask(r, http.MethodGet, "/v1/claims/"+claimID.String(), nil, nil)
			if p != nil && p.Status != http.StatusNotFound {
				return false, errNotAnswered
			}
			return p == nil, nil
		})
	}
	health.Ask(r.Context(), &all, &user, func(context.Context) (found userClaims, err error) {
		err = c.answered(r, "/v1/users/"+url.PathEscape(id)+"/claims?limit=50", &found)
		return found, err
	})
	health.Ask(r.Context(), &all, &order, func(ctx context.Context) ([]stored.ClaimRow, error) {
		return c.cfg.Records.ClaimsOfOrder(ctx, id, foundMax)
	})
	_ = all.Wait() // each answer has its own error
	if claim.Value {
		http.Redirect(w, r, Path+"/claims/"+claimID.String(), http.StatusSeeOther)
		return
	}
	page.OfUser = user.Value.Claims
	page.OfOrder = order.Value
	for what, known := range map[string]bool{
		"a claim with this id": claim.Known, "a claim of this user": user.Known, "a claim of this order": order.Known,
	} {
		if !known {
			page.Problems = append(page.Problems, "Whether there is "+what+" is not known now: a server does not answer. Try again.")
		}
	}
	slices.Sort(page.Problems)
	page.build(c, r)
	c.show(w, s, http.StatusOK, "find", page)
}

func (p *findPage) build(c *Console, r *http.Request) {
	claims := slices.Clone(p.OfUser)
	for i := range p.OfOrder[:min(len(p.OfOrder), livesMax)] {
		id := p.OfOrder[i].ID
		if slices.ContainsFunc(claims, func(known models.Claim) bool { return known.ID == id }) {
			continue
		}
		var claim models.Claim
		if _, refused := c.ask(r, http.MethodGet, "/v1/claims/"+url.PathEscape(id), nil, &claim); refused == nil {
			claims = append(claims, claim)
		}
	}
	if len(claims) > livesMax {
		claims = claims[:livesMax]
		p.Problems = append(p.Problems, "There are more claims than are shown below in order: open one to see its life.")
	}
	// for those of one millisecond
	slices.SortFunc(claims, func(a, b models.Claim) int { return strings.Compare(a.ID, b.ID) })
	for i := range claims {
		story, err := c.story(r.Context(), claims[i].ID)
		if err != nil {
			p.Problems = append(p.Problems, "What became of the claims may be missing: MySQL does not answer.")
			return
		}
		for _, m := range lifeOf(&claims[i], &story, true) {
			m.Claim = claims[i].ID
			p.Life = append(p.Life, m)
		}
	}
	slices.SortStableFunc(p.Life, func(a, b moment) int { return a.At.Compare(b.At) })
}

type claimPage struct {
	Done  string
	Acts  bool // the user may redeem, release, reopen and extend it
	Claim models.Claim
	Life  []moment
	Away  bool // MySQL didn't answer: decisions may be missing
}

type moment struct {
	At    time.Time
	What  string
	Why   string
	Event string // id of its event
	Claim string // its claim, on a page of many
}

func (c *Console) getClaim(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	var page claimPage
	if _, p := c.ask(r, "GET", "/v1/claims/"+url.PathEscape(r.PathValue("id")), nil, &page.Claim); p != nil {
		c.show(w, s, p.Status, "refused", *p)
		return
	}
	story, err := c.story(r.Context(), page.Claim.ID)
	page.Away = err != nil
	page.Life = lifeOf(&page.Claim, &story, err == nil)
	page.Done = doneWords[r.URL.Query().Get("done")]
	page.Acts = s.Who.Acts && page.Claim.PacketID == ""
	c.show(w, s, http.StatusOK, "claim", page)
}

func (c *Console) story(ctx context.Context, id string) (stored.ClaimStory, error) {
	ctx, cancel := context.WithTimeout(ctx, health.Timeout)
	defer cancel()
	story, err := c.cfg.Records.Story(ctx, id)
	if errors.Is(err, models.ErrNotFound) {
		return story, nil
	}
	return story, err
}

// seqScope names what the claim's seq counts in. Without its row that may be
// the campaign or one of its shards.
func seqScope(story *stored.ClaimStory) string {
	switch {
	case story.Row == nil:
		return "the campaign or of its shard"
	case story.Row.Shard > 0:
		return "shard " + strconv.Itoa(story.Row.Shard)
	}
	return "the campaign"
}

// lifeOf is a claim's history in order. known is false if MySQL doesn't
// answer: then nothing is said about a missing row.
func lifeOf(claim *models.Claim, story *stored.ClaimStory, known bool) []moment {
	life := []moment{{
		At: claim.ClaimedAt.Time, What: "Claimed", Why: "Redis accepted it as claim " + words.Number(claim.Seq) + " of " + seqScope(story) + ".",
		Event: claim.ID,
	}}
	if story.Row != nil {
		life = append(life, moment{At: story.Row.SyncedAt, What: "In MySQL", Why: "Its row was written and the books moved by it."})
	}
	if story.Parked != nil {
		life = append(life, moment{At: story.Parked.ParkedAt, What: "Parked", Why: "MySQL refused its row: " + story.Parked.Reason +
			". Its units count as claimed. Repair the books of the campaign."})
	}
	if story.Row != nil && story.Row.ReopenedAt != nil {
		life = append(life, moment{At: *story.Row.ReopenedAt, What: "Reopened", Why: "An earlier redeem was taken back."})
	}
	if claim.RedeemedAt != nil {
		life = append(life, moment{At: claim.RedeemedAt.Time, What: "Redeemed", Why: "By order " + claim.OrderID + "."})
	}
	if claim.ReleasedAt != nil {
		what := "Released"
		if claim.Status == models.ClaimExpired {
			what = "Expired"
		}
		life = append(life, moment{At: claim.ReleasedAt.Time, What: what, Why: claim.ReleaseReason})
	}
	for i := range story.Outbox {
		row := &story.Outbox[i]
		life = append(life, moment{
			At: row.CreatedAt, What: "Redis does not know yet",
			Why: "So units and limits are right in Redis, and every reader of the stream knows.", Event: row.ID,
		})
	}
	if claim.ExpiresAt != nil && claim.Status == models.ClaimClaimed {
		life = append(life, moment{At: claim.ExpiresAt.Time, What: "Will expire", Why: "Unless it is redeemed before."})
	}
	slices.SortStableFunc(life, func(a, b moment) int { return a.At.Compare(b.At) })
	if known && story.Row == nil && story.Parked == nil {
		life = append(life, moment{At: time.Now(), What: "Not in MySQL yet", Why: "Its event is in the stream and on its way."})
	}
	return life
}
