package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
	"dibs/lua"
)

// A name that has nothing pending and got nothing for leftFor goes; each process looks every tidyEvery. One that is at work after all is
// made again by its next read.
const leftFor, tidyEvery = time.Hour, 10 * time.Minute

// dropLeft removes the consumers of a group that have nothing pending and were idle for so many milliseconds, but one. It is a script
// because a consumer that got an entry in between would lose it with its name.
//
//nolint:dupword,gochecknoglobals // blocks of Lua end twice; nothing writes to it
var dropLeft = redis.NewScript(`
local dropped = 0
for _, one in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local is = {}
  for i = 1, #one, 2 do is[one[i]] = one[i + 1] end
  if is.name ~= ARGV[2] and is.pending == 0 and is.idle > tonumber(ARGV[3]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], is.name)
    dropped = dropped + 1
  end
end
return dropped`)

// tidy removes names that were left behind, again and again until ctx ends.
func (s *subscriber) tidy(ctx context.Context, running *sync.WaitGroup) {
	running.Go(func() {
		for {
			s.dropNames(ctx, leftFor)
			if sleep.For(ctx, tidyEvery) != nil {
				return
			}
		}
	})
}

func (s *subscriber) dropNames(ctx context.Context, idle time.Duration) {
	for p := range s.cfg.partitions {
		stream := lua.StreamKey(p)
		n, err := dropLeft.Run(ctx, s.cfg.client, []string{stream}, s.cfg.group, s.cfg.name, idle.Milliseconds()).Int64()
		switch {
		case err != nil: // there is no such group yet, or a Redis that is away, which the readers log
		case n > 0:
			s.cfg.log.Info("removed consumers that left nothing pending and were away for long",
				"stream", stream, "group", s.cfg.group, "consumers", n)
		}
	}
}
