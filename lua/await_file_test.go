package lua

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// persistence answers INFO persistence in place of a server.
type persistence func() (aof, pending int)

func (p persistence) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no server") }
}

func (p persistence) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		aof, pending := p()
		cmd.(*redis.StringCmd).SetVal(fmt.Sprintf("# Persistence\r\naof_enabled:%d\r\naof_pending_bio_fsync:%d\r\n", aof, pending))
		return nil
	}
}

func (p persistence) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A sync that went on when the debit was written may lack it. The one after it has it.
func TestAwaitFile_WaitsForASyncThatBeganLater(t *testing.T) {
	t.Parallel()
	everySec := fmt.Errorf(`fsync needs "appendfsync always", it is "everysec"`)
	tooFew := fmt.Errorf("%w: 0 of 1 disks have it", errTooFew)
	for name, one := range map[string]struct {
		err     error
		aof     int
		syncs   [][2]time.Duration // from, until
		want    time.Duration
		wantErr error
	}{
		"a fast disk":                     {err: everySec, aof: 1, want: syncWithin},
		"a sync that goes on":             {err: everySec, aof: 1, syncs: [][2]time.Duration{{0, time.Second}}, want: time.Second + syncWithin},
		"the next sync is slow":           {err: everySec, aof: 1, syncs: [][2]time.Duration{{time.Second, 3 * time.Second}}, want: 3 * time.Second},
		"no file":                         {err: everySec},
		"a server that can tell, and did": {err: tooFew, aof: 1, wantErr: errTooFew},
		"a disk that hangs":               {err: everySec, aof: 1, syncs: [][2]time.Duration{{0, time.Hour}}, wantErr: ErrOutcomeUnknown, want: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				started := time.Now()
				rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
				defer func() { require.NoError(t, rdb.Close()) }()
				rdb.AddHook(persistence(func() (aof, pending int) {
					for _, sync := range one.syncs {
						if at := time.Since(started); at >= sync[0] && at < sync[1] {
							pending = 1
						}
					}
					return one.aof, pending
				}))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.ErrorIs(t, awaitFile(ctx, rdb, one.err), one.wantErr)
				require.InDelta(t, one.want.Seconds(), time.Since(started).Seconds(), 3*syncPoll.Seconds())
			})
		})
	}
}
