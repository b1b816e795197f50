package lua

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// paceFree is how many records go without a pause, whoever waits: some 50 ms of Redis, spread over twice that.
	paceFree = 25_000
	// paceLeast is the least rate of staging, in records a second: about a tenth of Redis.
	paceLeast = 80_000
	// paceWhole is how long the staging of a campaign may be drawn out. One that has more records than paceLeast brings in that
	// time goes faster, and the others pay for it.
	paceWhole = 20 * time.Second
	// paceLook is how often it is found out whether others claim.
	paceLook = 200 * time.Millisecond
	// paceOthers is how many scripts a second make it worth to hold back: below that hardly any claim meets a load at all.
	paceOthers = 100
	// paceSleep is the shortest pause: timers are no finer.
	paceSleep = time.Millisecond
	// paceCatchUp bounds what is made up for after a late wake-up.
	paceCatchUp = 250 * time.Millisecond
)

// pace keeps a rebuild from crowding out claims of other campaigns: while others run scripts on the server, records are staged
// at a bounded rate; else as fast as it goes, since the campaign itself takes no claims for that long. It also paces the
// reader of MySQL, who waits for it.
type pace struct {
	calls func(ctx context.Context) (int64, error) // of scripts, ever, on the server of the campaign
	rate  float64                                  // records a second

	staged    int64
	busy      bool
	lookedAt  time.Time
	callsThen int64
	next      time.Time // when the next records may go
}

// newPace begins a pace for about so many records of the campaign that holds key.
func (s *Scripts) newPace(ctx context.Context, key string, records int64) *pace {
	p := &pace{
		calls: func(ctx context.Context) (int64, error) { return s.scriptCalls(ctx, key) },
		rate:  rateFor(records),
	}
	p.look(ctx, time.Now())
	return p
}

// rateFor is the rate, in records a second, at which so many are staged while others claim.
func rateFor(records int64) float64 { return max(paceLeast, float64(records)/paceWhole.Seconds()) }

// commands is how many commands may share a round trip.
func (p *pace) commands() int {
	if p.busy && p.staged >= paceFree {
		return stageCommandsPaced
	}
	return stageCommands
}

// after waits as long as so many records that were just staged call for.
func (p *pace) after(ctx context.Context, records int) error {
	p.staged += int64(records)
	if p.staged < paceFree {
		return nil
	}
	now := time.Now()
	if now.Sub(p.lookedAt) >= paceLook || p.next.IsZero() {
		p.look(ctx, now)
		now = time.Now()
	}
	if earliest := now.Add(-paceCatchUp); !p.busy || p.next.Before(earliest) {
		p.next = earliest
	}
	if !p.busy {
		return nil
	}
	p.next = p.next.Add(time.Duration(float64(records) / p.rate * float64(time.Second)))
	wait := p.next.Sub(now)
	if wait < paceSleep {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return sortError("stage", ctx.Err())
	}
}

// look finds out whether others claim. Where the server does not say, they are taken to.
func (p *pace) look(ctx context.Context, now time.Time) {
	calls, err := p.calls(ctx)
	since := now.Sub(p.lookedAt).Seconds()
	p.busy = err != nil || !p.lookedAt.IsZero() && float64(calls-p.callsThen) > paceOthers*since
	p.lookedAt, p.callsThen = now, calls
}

var scriptCallsLine = regexp.MustCompile(`(?m)^cmdstat_(?:evalsha|eval):calls=(\d+)`)

// scriptCalls is how many scripts the server of a key has run, ever.
func (s *Scripts) scriptCalls(ctx context.Context, key string) (int64, error) {
	var node interface {
		Info(ctx context.Context, sections ...string) *redis.StringCmd
	} = s.rdb
	if cluster, is := s.rdb.(*redis.ClusterClient); is {
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return 0, sortError("info", err)
		}
		node = master
	}
	text, err := node.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, sortError("info", err)
	}
	var calls int64
	for _, line := range scriptCallsLine.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseInt(line[1], 10, 64)
		if err != nil {
			return 0, sortError("info", err)
		}
		calls += n
	}
	return calls, nil
}
