// Package health asks what the service depends on, each with its own
// deadline, and judges the answers.
package health

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dibs/api/console/words"
	"dibs/internal/redisconn"
	"dibs/internal/softstate"
	"dibs/lua"
	"dibs/models"
	"dibs/models/stored"
)

// Report is the dependencies' answers.
type Report struct {
	Redis     Asked[redisconn.Health]
	MySQL     Asked[Pool]
	Leader    Asked[string]
	Processes Asked[[]softstate.Process]
	Books     Asked[stored.Trouble]
	Parked    Asked[map[string]int64] // messages by group
	Streams   []Stream
}

// Asked is an answer, or its absence.
type Asked[T any] struct {
	Known bool
	Value T
	Took  time.Duration
}

// Pool is this process' MySQL connection pool. Gaps are claim streams that
// begin later than MySQL has applied, each with both times: MySQL can never
// apply what is between.
type Pool struct {
	InUse, Conns int
	Gaps         []string
}

// Stream is a claim stream with its consumer groups, unknown if Redis
// doesn't answer.
type Stream struct {
	Partition int
	Groups    Asked[[]Group]
}

// Group is a consumer group of one stream.
type Group struct {
	lua.Group

	Waits     time.Duration // how long its oldest entry has waited; 0: none waits
	Consumers []lua.Consumer
}

// Timeout is how long an answer may take.
const Timeout = time.Second

// Redis is what is read from Redis.
type Redis interface {
	Partitions() int
	Groups(ctx context.Context, partition int) ([]lua.Group, error)
	Entries(ctx context.Context, partition int, from lua.EntryID, most int) ([]lua.Entry, error)
	Consumers(ctx context.Context, partition int, group string) ([]lua.Consumer, error)
	Leader(ctx context.Context) (string, error)
	Processes(ctx context.Context) ([]softstate.Process, error)
	Health(ctx context.Context) (redisconn.Health, error)
}

// Sources are what a Report asks.
type Sources struct {
	Redis  Redis
	MySQL  func(ctx context.Context) (Pool, error)
	Books  func(ctx context.Context) (stored.Trouble, error)
	Parked func(ctx context.Context) (map[string]int64, error) // messages by group
}

// Of queries all dependencies concurrently, so that a hanging one neither
// delays the others nor makes them seem down.
func Of(ctx context.Context, from *Sources) Report {
	redis := from.Redis
	h := Report{Streams: make([]Stream, redis.Partitions())}
	var all, streams errgroup.Group
	streams.SetLimit(16)
	Ask(ctx, &all, &h.Redis, redis.Health)
	Ask(ctx, &all, &h.MySQL, from.MySQL)
	Ask(ctx, &all, &h.Leader, redis.Leader)
	Ask(ctx, &all, &h.Processes, redis.Processes)
	Ask(ctx, &all, &h.Books, from.Books)
	Ask(ctx, &all, &h.Parked, from.Parked)
	for p := range h.Streams {
		h.Streams[p].Partition = p
		Ask(ctx, &streams, &h.Streams[p].Groups, func(ctx context.Context) ([]Group, error) { return groupsOf(ctx, redis, p) })
	}
	_ = all.Wait()
	_ = streams.Wait() // each answer has its own error
	return h
}

// Ask stores an answer, with the deadline Timeout.
func Ask[T any](ctx context.Context, in *errgroup.Group, into *Asked[T], from func(context.Context) (T, error)) {
	in.Go(func() error {
		ctx, cancel := context.WithTimeout(ctx, Timeout)
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
	Page  string // of the console, with details; "": none
}

const (
	good    = "good"
	warn    = "warn"
	bad     = "bad"
	unknown = "unknown"
)

// Worst is the most urgent check.
func (h *Report) Worst() Check {
	order := []string{bad, warn, unknown, good}
	return slices.MinFunc(h.Checks(), func(a, b Check) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
}

// Checks judges each dependency only by its own answer. A missing answer is
// unknown, not zero.
func (h *Report) Checks() []Check {
	return []Check{
		{Name: "API", State: good, Text: "this process answers"}, h.checkRedis(), h.checkMySQL(), h.checkLeader(),
		h.checkConsumers(), h.checkBacklog(), h.checkParked(), h.checkDrift(),
	}
}

func (h *Report) checkRedis() Check {
	if !h.Redis.Known {
		return Check{Name: "Redis", State: bad, Text: "does not answer: claims are refused with 503"}
	}
	text := "answers in " + words.Took(h.Redis.Took)
	m := &h.Redis.Value
	if m.UsedBytes > 0 {
		text += ", uses " + words.Bytes(m.UsedBytes)
	}
	if m.LimitBytes > 0 {
		text += " of " + words.Bytes(m.LimitBytes)
		if m.UsedBytes > m.LimitBytes*9/10 {
			return Check{Name: "Redis", State: bad, Text: text + ": when it is full, claims are refused"}
		}
	}
	return Check{Name: "Redis", State: good, Text: text}
}

func (h *Report) checkMySQL() Check {
	if !h.MySQL.Known {
		return Check{Name: "MySQL", State: bad, Text: "does not answer: claims of loaded campaigns go on and wait in Redis, changes are refused"}
	}
	p := h.MySQL.Value
	if len(p.Gaps) > 0 {
		text := p.Gaps[0]
		if more := len(p.Gaps) - 1; more > 0 {
			text += " and " + words.Plural(int64(more), "other")
		}
		return Check{
			Name: "MySQL", State: bad,
			Text: text + ". Roll MySQL's binary log forward, or give up what is between with `dibs reconcile --accept-gap`",
		}
	}
	return Check{
		Name: "MySQL", State: good,
		Text: "answers in " + words.Took(h.MySQL.Took) + ", " +
			strconv.Itoa(p.InUse) + " of " + words.Plural(int64(p.Conns), "connection") + " in use",
	}
}

func (h *Report) checkLeader() Check {
	switch {
	case !h.Leader.Known:
		return Check{Name: "Syncer", State: unknown, Text: words.NotKnown}
	case h.Leader.Value == "":
		return Check{Name: "Syncer", State: bad, Text: "none leads: nothing is trimmed, evicted, expired or compared", Page: "processes"}
	}
	return Check{Name: "Syncer", State: good, Text: h.Leader.Value + " leads", Page: "processes"}
}

// waits is how long each group's oldest entry has waited, over all streams.
// known is false if a stream couldn't be read.
func (h *Report) waits() (byGroup map[string]time.Duration, known bool) {
	byGroup = make(map[string]time.Duration)
	known = true
	for i := range h.Streams {
		known = known && h.Streams[i].Groups.Known
		for j := range h.Streams[i].Groups.Value {
			g := &h.Streams[i].Groups.Value[j]
			byGroup[g.Name] = max(byGroup[g.Name], g.Waits)
		}
	}
	return byGroup, known
}

// silentAfter is how long a process may be silent before it counts as gone.
const silentAfter = 3 * time.Second

// IsSilent reports whether a process was silent for too long.
func IsSilent(d time.Duration) bool { return d > silentAfter }

var rolesThatConsume = []string{"consumer", "serve"}

func (h *Report) checkConsumers() Check {
	check := Check{Name: "Consumers", Page: "processes"}
	running := int64(0)
	for i := range h.Processes.Value {
		if p := &h.Processes.Value[i]; !IsSilent(p.Silent) && slices.Contains(rolesThatConsume, p.Role) {
			running++
		}
	}
	switch {
	case !h.Processes.Known:
		check.State = unknown
		check.Text = words.NotKnown
	case running == 0:
		check.State = bad
		check.Text = "none runs: claims are taken and wait in Redis, no row reaches MySQL"
	default:
		check.State = good
		check.Text = words.Plural(running, "process") + " of group " + models.GroupSyncer
	}
	return check
}

// patience is how long a group's oldest entry may wait. Claims on their way
// to MySQL have less time than other groups' entries.
func patience(group string) (warns, isBad time.Duration) {
	if group == models.GroupSyncer {
		return 10 * time.Second, time.Minute
	}
	return time.Minute, time.Hour
}

// Advice is what helps a group that is behind.
func Advice(group string) string {
	switch group {
	case models.GroupSyncer:
		return "Is a consumer running?"
	case "finance":
		return "Start `dibs finance`, or remove the group if you hand out no red packets."
	}
	return "Is its reader running? If it has none any more, remove the group."
}

// checkBacklog judges groups by the age of unhandled entries. Registered
// readers prove nothing: they may have ended.
func (h *Report) checkBacklog() Check {
	waits, known := h.waits()
	if !known {
		return Check{Name: "Backlog", State: unknown, Text: words.NotKnown}
	}
	check := Check{Name: "Backlog", State: good, Text: "nothing waits"}
	if waited := waits[models.GroupSyncer]; waited > 0 {
		check.Text = "the oldest claim has waited " + words.Took(waited)
	}
	for _, group := range slices.Sorted(maps.Keys(waits)) {
		waited := waits[group]
		warns, isBad := patience(group)
		if waited <= warns || check.State == bad || check.State == warn && waited <= isBad {
			continue
		}
		check.State = warn
		if waited > isBad {
			check.State = bad
		}
		check.Page = "processes"
		check.Text = "the oldest entry of group " + group + " has waited " + words.Took(waited) + ". " + Advice(group)
	}
	return check
}

func (h *Report) checkParked() Check {
	check := Check{Name: "Parked", State: good, Text: "none", Page: "trouble"}
	var missing []string
	claims := h.Books.Value.Parked
	messages := int64(0)
	for _, n := range h.Parked.Value {
		messages += n
	}
	if !h.Books.Known {
		missing = append(missing, "claims not known")
	}
	if !h.Parked.Known {
		missing = append(missing, "messages not known")
	}
	switch {
	case claims > 0 || messages > 0:
		check.State = bad
		check.Text = words.Plural(claims, "claim") + ", " + words.Plural(messages, "message")
	case len(missing) > 0:
		check.State = unknown
		check.Text = strings.Join(missing, ", ")
		missing = nil
	}
	for _, m := range missing {
		check.Text += ", " + m
	}
	return check
}

func (h *Report) checkDrift() Check {
	b := &h.Books.Value
	last := "nothing was compared yet"
	if b.ComparedAt != nil {
		last = "last comparison recorded " + words.Ago(*b.ComparedAt) + " ago"
	}
	switch {
	case !h.Books.Known:
		return Check{Name: "Drift", State: unknown, Text: words.NotKnown}
	case b.Drifting > 0:
		return Check{Name: "Drift", State: bad, Text: "in " + words.Plural(b.Drifting, "campaign") + ", " + last, Page: "trouble"}
	case !h.Leader.Known || h.Leader.Value == "":
		return Check{Name: "Drift", State: unknown, Text: "not compared; " + last}
	}
	return Check{Name: "Drift", State: good, Text: "none"}
}
