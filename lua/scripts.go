package lua

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

var (
	// ErrUnavailable reports that nothing happened: Redis was not
	// reached, or refused first.
	ErrUnavailable = errors.New("lua: redis unavailable")
	// ErrOutcomeUnknown reports that the script was sent without an
	// answer, so it may have run.
	ErrOutcomeUnknown = errors.New("lua: outcome unknown")
	// ErrAbsent reports that Redis lacks the lot, so its state is unknown.
	ErrAbsent = errors.New("lua: campaign not in redis")
	// ErrDamaged reports a key of the lot that
	// a script refuses. Nothing was changed.
	ErrDamaged = errors.New("lua: campaign damaged in redis")
	// ErrOther reports another load of the lot,
	// or another loader. Nothing was changed.
	ErrOther = errors.New("lua: another load of the campaign in redis")
	// ErrGeneration reports that Redis and MySQL have different generations
	// of the partition: one of them lost data. Nothing was changed.
	ErrGeneration = errors.New("lua: the partition has another generation")
)

//go:embed *.lua
var sources embed.FS

//go:embed shared/*.lua
var shared embed.FS

type script struct {
	name, source string
	*redis.Script
}

func newScript(name, source string) script { return script{name, source, redis.NewScript(source)} }

// include is a line of a script that a file of shared replaces.
var include = regexp.MustCompile(`-- include (\w+\.lua)\n`)

// Source returns the text of a script, with its includes.
func Source(name string) string {
	source, err := sources.ReadFile(name + ".lua")
	if err != nil { // a misspelled name: no Scripts can be made
		panic(err)
	}
	return include.ReplaceAllStringFunc(string(source), func(line string) string {
		text, err := shared.ReadFile("shared/" + include.FindStringSubmatch(line)[1])
		if err != nil {
			panic(err)
		}
		return string(text)
	})
}

// Options of New. The zero value has one partition and the process's clock.
type Options struct {
	Partitions int // claim streams; 0 is 1
	// for the table of days; nil is time.Now
	Clock func() time.Time
	// called after each script, unless nil
	Observe func(script string, took time.Duration, err error)
	// of claims before they are answered
	Durability Durability

	// CheckServer must pass for a server to
	// accept claims, see Away. nil is no check.
	CheckServer func(ctx context.Context, node *redis.Client) error

	// ServerClock replaces Redis' clock in tests of midnight, in
	// milliseconds since 1970.
	ServerClock func() int64
}

// Scripts runs Dibs' scripts on one Redis. It is safe for concurrent use.
type Scripts struct {
	rdb  redis.UniversalClient
	opts Options

	days    dayTables
	applied applied

	scripts map[string]script // by name
}

// New returns Scripts on a client. No script is
// sent twice, whatever the client's retries.
func New(rdb redis.UniversalClient, opts Options) (*Scripts, error) {
	if opts.Partitions == 0 {
		opts.Partitions = 1
	}
	if opts.Partitions < 1 || opts.Partitions > PartitionsMax {
		return nil, fmt.Errorf("lua: partitions must be 1 to %d, not %d", PartitionsMax, opts.Partitions)
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Observe == nil {
		opts.Observe = func(string, time.Duration, error) {}
	}
	s := &Scripts{rdb: rdb, opts: opts, scripts: map[string]script{
		"installation": newScript("installation", setInstallation),
		"trim":         newScript("trim", trimBelow),
	}}
	for _, name := range names() {
		s.scripts[name] = newScript(name, Source(name))
	}
	return s, nil
}

func names() []string {
	files, _ := fs.Glob(sources, "*.lua") // the pattern is well-formed
	for i := range files {
		files[i] = strings.TrimSuffix(files[i], ".lua")
	}
	return files
}

// Partitions returns the number of claim streams.
func (s *Scripts) Partitions() int { return s.opts.Partitions }

// KeysOf returns the keys of a lot.
func (s *Scripts) KeysOf(campaignID string) CampaignKeys {
	return KeysOf(campaignID, PartitionOf(campaignID, s.opts.Partitions))
}

// Preload compiles every script in Redis, which
// saves the first claim a second round trip.
func (s *Scripts) Preload(ctx context.Context) error {
	for _, one := range s.scripts {
		if err := one.Load(ctx, s.rdb).Err(); err != nil {
			return fmt.Errorf("lua: preload %s: %w", one.name, err)
		}
	}
	return nil
}

// During a slot migration a script is retried
// every tryAgainEvery, up to maxTryAgain.
const maxTryAgain, tryAgainEvery = time.Second, 5 * time.Millisecond

// sendScript sends a script by digest, and again if it was refused before
// anything ran. After NOSCRIPT it sends the text. After TRYAGAIN, while a
// cluster moves the slot of the keys, it sends the same.
func (s *Scripts) sendScript(
	ctx context.Context, one script, send func(command, script string) ([]any, error),
) (reply []any, err error) {
	for until := time.Now().Add(maxTryAgain); ; {
		reply, err = send("evalsha", one.Hash())
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			reply, err = send("eval", one.source)
		}
		if !redis.HasErrorPrefix(err, "TRYAGAIN") || time.Now().After(until) || sleep.For(ctx, tryAgainEvery) != nil {
			return reply, err
		}
	}
}

func (s *Scripts) run(ctx context.Context, name string, keys []string, args []any) (code int64, reply []any, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, fmt.Errorf("%w: %s not sent: %w", ErrUnavailable, name, err)
	}
	start := s.opts.Clock()
	reply, err = s.sendScript(ctx, s.scripts[name], func(command, script string) ([]any, error) {
		cmd := scriptCmd(ctx, command, script, keys, args)
		_ = s.rdb.Process(ctx, cmd) // cmd has the error
		return cmd.Slice()
	})
	err = classifyError(name, err)
	s.opts.Observe(name, s.opts.Clock().Sub(start), err)
	if err == nil {
		code, err = status(name, reply)
	}
	return code, reply, err
}

func scriptCmd(ctx context.Context, command, script string, keys []string, args []any) onceCmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, command, script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := onceCmd{redis.NewCmd(ctx, append(all, args...)...)}
	cmd.SetFirstKeyPos(firstKeyPos)
	return cmd
}

// firstKeyPos is the index of the first key of
// EVAL, by which a cluster client picks the node.
const firstKeyPos = 3

// onceCmd is never retried after it may have run. MaxRetries does not
// stop a cluster client: it repeats timeouts while it follows
// redirects, and returns only the last error.
type onceCmd struct{ *redis.Cmd }

// NoRetry stops the client's retries. It still follows MOVED.
func (onceCmd) NoRetry() bool { return true }

// classifyError wraps ErrUnavailable if nothing
// happened for sure, and else ErrOutcomeUnknown.
func classifyError(name string, err error) error {
	var answered redis.Error
	var dial *net.OpError
	// of a connection that failed its check, see internal/redisconn
	var unused interface{ NotSent() bool }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answered): // Redis refused: no script of ours fails after its first write
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, name, err)
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed),
		errors.As(err, &unused) && unused.NotSent(),
		errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("%w: %s not sent: %w", ErrUnavailable, name, err)
	default:
		return fmt.Errorf("%w: %s: %w", ErrOutcomeUnknown, name, err)
	}
}

// These codes mean the same in every script.
const (
	statusOK      = 0
	statusAbsent  = 1
	statusDamaged = 2
)

func status(name string, reply []any) (int64, error) {
	if len(reply) > 0 {
		if code, ok := reply[0].(int64); ok {
			return code, nil
		}
	}
	return 0, badReply(name, reply)
}

// badReply reports a reply that no script gives. The outcome is unknown.
func badReply(name string, reply []any) error {
	text := fmt.Sprintf("%.200v", reply)
	return fmt.Errorf("%w: %s replied %s", ErrOutcomeUnknown, name, strings.ToValidUTF8(text, "?"))
}

// refusal is the error of a reply that a
// script did nothing, for a common reason.
func refusal(name, id string, keys []string, code int64, reply []any) error {
	if code == statusAbsent {
		return fmt.Errorf("%w: %s", ErrAbsent, id)
	}
	return damaged(name, keys, reply)
}

func damaged(name string, keys []string, reply []any) error {
	if len(reply) == 2 {
		if which, ok := reply[1].(int64); ok && which >= 1 && int(which) <= len(keys) {
			return fmt.Errorf("%w: %s will not work on key %s", ErrDamaged, name, keys[which-1])
		}
	}
	return badReply(name, reply)
}
