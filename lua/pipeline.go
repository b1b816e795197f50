package lua

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

type call struct {
	keys []string
	args []any
}

type answer struct {
	code  int64
	reply []any
	err   error // as those of run
}

// runPipelined calls one script several times in one round trip. Redis
// serves others in between.
func (s *Scripts) runPipelined(ctx context.Context, name string, calls []call) []answer {
	answers := make([]answer, len(calls))
	if err := ctx.Err(); err != nil {
		for i := range answers {
			answers[i].err = fmt.Errorf("%w: %s not sent: %w", ErrUnavailable, name, err)
		}
		return answers
	}
	started := s.opts.Clock()
	cmds := make([]onceCmd, len(calls))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i := range calls {
			cmds[i] = scriptCmd(ctx, "evalsha", s.scripts[name].Hash(), calls[i].keys, calls[i].args)
			_ = p.Process(ctx, cmds[i])
		}
		return nil
	})
	share := s.opts.Clock().Sub(started) / time.Duration(max(1, len(calls)))
	for i := range cmds {
		reply, err := cmds[i].Slice()
		// nothing ran
		if redis.HasErrorPrefix(err, "NOSCRIPT") || redis.HasErrorPrefix(err, "TRYAGAIN") {
			answers[i].code, answers[i].reply, answers[i].err = s.run(ctx, name, calls[i].keys, calls[i].args)
			continue
		}
		err = classifyError(name, err)
		s.opts.Observe(name, share, err)
		answers[i] = answer{reply: reply, err: err}
		if err == nil {
			answers[i].code, answers[i].err = status(name, reply)
		}
	}
	return answers
}
