package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"dibs/lua"
	"dibs/models"
)

// Health is what each dependency answered, each within its own deadline.
type Health struct {
	Redis     Asked[lua.Health]
	MySQL     Asked[Pool]
	Leader    Asked[string]
	Processes Asked[[]lua.Process]
	Books     Asked[models.Trouble]
	Parked    Asked[map[string]int64] // messages by group
	Streams   []Stream
}

// Asked is an answer, or the lack of one.
type Asked[T any] struct {
	Known bool
	Value T
	Took  time.Duration
}

// Pool is the connection pool of this process to MySQL.
type Pool struct{ InUse, Conns int }

// Stream is a claim stream and its consumer groups; unknown when Redis does not answer.
type Stream struct {
	Partition int
	Groups    Asked[[]Group]
}

// Group is a consumer group of one stream.
type Group struct {
	lua.Group

	Waits     time.Duration // how long its oldest entry has waited; 0: nothing waits
	Consumers []lua.Consumer
}

// Readers counts the consumers that hold the lease of their name.
func (g *Group) Readers() (n int) {
	for i := range g.Consumers {
		if g.Consumers[i].Holds {
			n++
		}
	}
	return n
}

// askTimeout is the deadline of each dependency.
const askTimeout = 1500 * time.Millisecond

// Redis answers what the console asks of Redis.
type Redis interface {
	Partitions() int
	Groups(ctx context.Context, partition int) ([]lua.Group, error)
	Entries(ctx context.Context, partition int, from lua.EntryID, most int) ([]lua.Entry, error)
	Consumers(ctx context.Context, partition int, group string) ([]lua.Consumer, error)
	Leader(ctx context.Context) (string, error)
	Processes(ctx context.Context) ([]lua.Process, error)
	Health(ctx context.Context) (lua.Health, error)
	ReadHistory(ctx context.Context, campaignIDs []string, since time.Time) ([]lua.History, error)
}

// ParkedMessages are the messages that consumer groups could not handle.
type ParkedMessages interface {
	// Counts are how many each group has.
	Counts(ctx context.Context) (map[string]int64, error)
	// List is what a group has parked, the oldest first.
	List(ctx context.Context, group string, most int) ([]ParkedMessage, error)
	// Replay has the group's own processes handle messages once more.
	Replay(ctx context.Context, group string, ids []string) error
	// Discard deletes a message for good. What is not there any more is no error.
	Discard(ctx context.Context, group, id string) error
}

// ParkedMessage is a message that a group could not handle.
type ParkedMessage struct {
	ID, EventID, Reason, Payload string

	At       time.Time
	Attempts int64
	Asked    bool   // for a replay, which has not happened yet
	Left     string // why the last replay left it
}

var _ Redis = (*lua.Scripts)(nil)

// health asks all dependencies at the same time, so that one that hangs delays and discredits none of the others.
func (c *Console) health(ctx context.Context) Health {
	redis := c.cfg.Redis
	h := Health{Streams: make([]Stream, redis.Partitions())}
	var all, streams errgroup.Group
	streams.SetLimit(16)
	ask(ctx, &all, &h.Redis, redis.Health)
	ask(ctx, &all, &h.MySQL, c.cfg.MySQL)
	ask(ctx, &all, &h.Leader, redis.Leader)
	ask(ctx, &all, &h.Processes, redis.Processes)
	ask(ctx, &all, &h.Books, c.cfg.Records.Trouble)
	ask(ctx, &all, &h.Parked, c.cfg.Parked.Counts)
	for p := range h.Streams {
		h.Streams[p].Partition = p
		ask(ctx, &streams, &h.Streams[p].Groups, func(ctx context.Context) ([]Group, error) { return groupsOf(ctx, redis, p) })
	}
	_ = all.Wait()
	_ = streams.Wait() // each answer says for itself whether there was one
	return h
}

// ask fills in an answer within askTimeout.
func ask[T any](ctx context.Context, in *errgroup.Group, into *Asked[T], from func(context.Context) (T, error)) {
	in.Go(func() error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		start := time.Now()
		value, err := from(ctx)
		*into = Asked[T]{Known: err == nil, Value: value, Took: time.Since(start)}
		return nil
	})
}

func groupsOf(ctx context.Context, redis Redis, partition int) ([]Group, error) {
	found, err := redis.Groups(ctx, partition)
	if err != nil {
		return nil, err
	}
	groups := make([]Group, len(found))
	for i := range found {
		g := &groups[i]
		g.Group = found[i]
		g.Consumers, err = redis.Consumers(ctx, partition, g.Name)
		if err != nil {
			return nil, err
		}
		switch {
		case g.Pending > 0:
			g.Waits = g.Oldest.Age(time.Now())
		case g.Backlog != 0:
			unread, err := redis.Entries(ctx, partition, g.Delivered.Next(), 1)
			if err != nil {
				return nil, err
			}
			if len(unread) > 0 {
				g.Waits = unread[0].ID.Age(time.Now())
			}
		}
	}
	return groups, nil
}

// Check is one line of the health strip.
type Check struct {
	Name  string
	State string // good, warn, bad or unknown
	Text  string
	Href  string // where to read on; "": nowhere
}

const (
	good    = "good"
	warn    = "warn"
	bad     = "bad"
	unknown = "unknown"
)

// Worst is the check that deserves attention first.
func (h *Health) Worst() Check {
	order := []string{bad, warn, unknown, good}
	return slices.MinFunc(h.Checks(), func(a, b Check) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
}

// Checks judges each dependency by its own answer alone. What was not answered is unknown, never none.
func (h *Health) Checks() []Check {
	return []Check{
		{
			Name: "API", State: good, Text: "this process answers",
		}, h.checkRedis(), h.checkMySQL(), h.checkLeader(), h.checkConsumers(), h.checkBacklog(),
		h.checkParked(), h.checkDrift(),
	}
}

func (h *Health) checkRedis() Check {
	if !h.Redis.Known {
		return Check{Name: "Redis", State: bad, Text: "does not answer: claims are refused with 503"}
	}
	text := "answers in " + took(h.Redis.Value.Took)
	m := &h.Redis.Value
	if m.UsedBytes > 0 {
		text += ", uses " + bytesOf(m.UsedBytes)
	}
	if m.LimitBytes > 0 {
		text += " of " + bytesOf(m.LimitBytes)
		if m.UsedBytes > m.LimitBytes*9/10 {
			return Check{Name: "Redis", State: bad, Text: text + ": when it is full, claims are refused"}
		}
	}
	return Check{Name: "Redis", State: good, Text: text}
}

func (h *Health) checkMySQL() Check {
	if !h.MySQL.Known {
		return Check{
			Name: "MySQL", State: bad, Text: "does not answer: claims of loaded campaigns go on and wait in Redis, changes are refused",
		}
	}
	p := h.MySQL.Value
	return Check{
		Name: "MySQL", State: good,
		Text: "answers in " + took(h.MySQL.Took) + ", " + strconv.Itoa(p.InUse) + " of " + plural(int64(p.Conns), "connection") + " in use",
	}
}

const notKnownWithoutRedis = "not known: Redis does not answer"

func (h *Health) checkLeader() Check {
	switch {
	case !h.Leader.Known:
		return Check{Name: "Syncer", State: unknown, Text: notKnownWithoutRedis}
	case h.Leader.Value == "":
		return Check{
			Name: "Syncer", State: bad, Text: "none leads: nothing is trimmed, evicted, expired or compared", Href: Path + "/processes",
		}
	}
	return Check{Name: "Syncer", State: good, Text: h.Leader.Value + " leads", Href: Path + "/processes"}
}

// groups sums up each group over the streams; known is false when a stream could not be read.
func (h *Health) groups() (sums []GroupSum, known bool) {
	known = true
	for i := range h.Streams {
		known = known && h.Streams[i].Groups.Known
		for j := range h.Streams[i].Groups.Value {
			g := &h.Streams[i].Groups.Value[j]
			at := slices.IndexFunc(sums, func(s GroupSum) bool { return s.Name == g.Name })
			if at < 0 {
				at = len(sums)
				sums = append(sums, GroupSum{Name: g.Name, Least: g.Readers()})
			}
			sums[at].add(g)
		}
	}
	return sums, known
}

// GroupSum is a consumer group over all streams.
type GroupSum struct {
	Name    string
	Backlog int64 // entries not acknowledged; below 0: not known
	Waits   time.Duration
	Least   int // the fewest running readers that a stream has
	Foreign int // consumers without a lease of Dibs: programs of others, or processes that ended
}

func (s *GroupSum) add(g *Group) {
	running := g.Readers()
	s.Least = min(s.Least, running)
	s.Waits = max(s.Waits, g.Waits)
	s.Foreign = max(s.Foreign, len(g.Consumers)-running)
	s.Backlog += g.Backlog
	if g.Backlog < 0 {
		s.Backlog = -1 << 40
	}
}

func (h *Health) checkConsumers() Check {
	sums, known := h.groups()
	at := slices.IndexFunc(sums, func(s GroupSum) bool { return s.Name == models.GroupSyncer })
	switch {
	case !known:
		return Check{Name: "Consumers", State: unknown, Text: notKnownWithoutRedis}
	case at < 0 || sums[at].Least == 0:
		return Check{
			Name: "Consumers", State: bad, Text: "none runs: claims are taken and wait in Redis, no row reaches MySQL",
			Href: Path + "/processes",
		}
	}
	for i := range sums {
		if s := &sums[i]; s.Least == 0 && s.Foreign == 0 && s.Backlog != 0 {
			return Check{
				Name: "Consumers", State: warn,
				Text: "no one reads as group " + s.Name + ": Redis keeps its events. " + adviceFor(s.Name), Href: Path + "/processes",
			}
		}
	}
	return Check{
		Name: "Consumers", State: good, Text: plural(int64(sums[at].Least), "consumer") + " of group " + models.GroupSyncer,
		Href: Path + "/processes",
	}
}

// adviceFor says what to do about a group without a reader.
func adviceFor(group string) string {
	if group == "finance" {
		return "Start `dibs finance`, or leave finance out of DIBS_GROUPS if you hand out no red packets."
	}
	return "Start its reader, or leave it out of DIBS_GROUPS."
}

func (h *Health) checkBacklog() Check {
	sums, known := h.groups()
	if !known {
		return Check{Name: "Backlog", State: unknown, Text: notKnownWithoutRedis}
	}
	var waits time.Duration
	for i := range sums {
		if sums[i].Name == models.GroupSyncer {
			waits = sums[i].Waits
		}
	}
	check := Check{Name: "Backlog", State: good, Text: "nothing waits"}
	if waits > 0 {
		check.Text = "the oldest claim has waited " + took(waits)
	}
	switch {
	case waits > time.Minute:
		check.State = bad
	case waits > 10*time.Second:
		check.State = warn
	}
	return check
}

func (h *Health) checkParked() Check {
	check := Check{Name: "Parked", State: good, Text: "none", Href: Path + "/trouble"}
	var missing []string
	claims := h.Books.Value.Parked
	messages := int64(0)
	for _, n := range h.Parked.Value {
		messages += n
	}
	if !h.Books.Known {
		missing = append(missing, "claims: MySQL does not answer")
	}
	if !h.Parked.Known {
		missing = append(missing, "messages: Redis does not answer")
	}
	switch {
	case claims > 0 || messages > 0:
		check.State = bad
		check.Text = plural(claims, "claim") + ", " + plural(messages, "message")
	case len(missing) > 0:
		check.State = unknown
		check.Text = "not known"
	}
	for _, m := range missing {
		check.Text += "; " + m
	}
	return check
}

func (h *Health) checkDrift() Check {
	b := &h.Books.Value
	last := "nothing was compared yet"
	if b.ComparedAt != nil {
		last = "last comparison recorded " + ago(*b.ComparedAt) + " ago"
	}
	switch {
	case !h.Books.Known:
		return Check{Name: "Drift", State: unknown, Text: "not known: MySQL does not answer"}
	case b.Drifting > 0:
		return Check{Name: "Drift", State: bad, Text: "in " + plural(b.Drifting, "campaign") + ", " + last, Href: Path + "/trouble"}
	case !h.Leader.Known:
		return Check{Name: "Drift", State: unknown, Text: "not compared: Redis does not answer; " + last}
	case h.Leader.Value == "":
		return Check{Name: "Drift", State: unknown, Text: "not compared: no syncer leads; " + last}
	}
	return Check{Name: "Drift", State: good, Text: "none"}
}

func (c *Console) getHealth(w http.ResponseWriter, r *http.Request, _ *session) {
	h := c.health(r.Context())
	c.fragment(w, "health", &h)
}

type processesPage struct {
	Health   Health
	Settings []Setting
}

// Setting is a setting of this process, a secret masked.
type Setting struct{ Variable, Value, From, Meaning string }

func (c *Console) getProcesses(w http.ResponseWriter, r *http.Request, s *session) {
	c.show(w, s, http.StatusOK, "processes", &processesPage{c.health(r.Context()), c.cfg.Settings})
}
