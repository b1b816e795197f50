package webhooks_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/internal/webhooks"
	"dibs/lua"
	"dibs/models/stored"
)

// A process that starts doesn't know what its predecessor wrote. Roles are
// stopped for a restore, or a successor takes over.
func TestReadAgainAfterRestores_AlsoIfTheProcessIsAnother(t *testing.T) {
	t.Parallel()
	db, rdb := syncertest.OpenServer(t), testenv.Redis(t).Client()
	scripts := syncertest.ScriptsOn(t, rdb, 1)
	require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), ID: "1-0", Values: []string{"a", "b"}}).Err())
	require.NoError(t, scripts.NewGroup(t.Context(), 0, webhooks.Group))
	read := func() {
		got, err := rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{
			Group: webhooks.Group, Consumer: webhooks.Group, Streams: []string{lua.StreamKey(0), ">"}, Count: 100, Block: -1,
		}).Result()
		require.NoError(t, err)
		for _, entry := range got[0].Messages {
			require.NoError(t, rdb.XAck(t.Context(), lua.StreamKey(0), webhooks.Group, entry.ID).Err())
		}
	}
	position := func() string {
		groups, err := scripts.Groups(t.Context(), 0)
		require.NoError(t, err)
		at := slices.IndexFunc(groups, func(g lua.Group) bool { return g.Name == webhooks.Group })
		return groups[at].Delivered.String()
	}
	process := func() {
		ctx, stop := context.WithCancel(t.Context())
		d := webhooks.New(webhooks.Config{DB: db, Logger: syncertest.Quiet()})
		require.NoError(t, d.ReadAgainAfterRestores(ctx, scripts, func(context.Context) error { stop(); return nil }))
	}
	read()
	process()
	var dump []stored.Setting
	require.NoError(t, db.Where("name LIKE 'webhooks:%'").Find(&dump).Error)
	require.Len(t, dump, 1)
	process()
	require.Equal(t, "1-0", position(), "nothing was restored")

	require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), ID: "2-0", Values: []string{"a", "b"}}).Err())
	read()
	process()
	require.NoError(t, db.Save(&dump[0]).Error)
	process()
	require.Equal(t, "1-0", position(), "what waited in the lost table is read again")
}

// A dump may be older than the first position, and than what was parked since:
// the events wait in it again.
func TestReadAgainAfterRestores_WhatWaitsAgainIsPosted(t *testing.T) {
	t.Parallel()
	db, rdb := syncertest.OpenServer(t), testenv.Redis(t).Client()
	scripts := syncertest.ScriptsOn(t, rdb, 1)
	require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), ID: "1-0", Values: []string{"a", "b"}}).Err())
	require.NoError(t, rdb.XGroupCreate(t.Context(), lua.StreamKey(0), webhooks.Group, "$").Err())
	r := newReceiver(t)
	r.answers(func(got) int { return 410 })
	p := startReading(t, webhooks.Config{
		DB: db, Endpoints: fixed(endpoints(t, endpoint("shop", r.URL))), GiveUpAfter: time.Millisecond,
	}, func(ctx context.Context, d *webhooks.Dispatcher) error {
		return d.ReadAgainAfterRestores(ctx, scripts, func(ctx context.Context) error { <-ctx.Done(); return nil })
	})
	parked := func() (n int64) {
		require.NoError(t, db.Model(&stored.WebhookEvent{}).Where("parked_at IS NOT NULL").Count(&n).Error)
		return n
	}
	p.submit("spring", 1, 7)
	eventually(t, "parked", func() bool { return parked() == 7 })
	eventually(t, "a position", func() bool {
		var n int64
		require.NoError(t, db.Model(&stored.Setting{}).Where("name LIKE 'webhooks:%'").Count(&n).Error)
		return n == 1
	})
	r.answers(func(got) int { return 204 })

	require.NoError(t, db.Model(&stored.WebhookEvent{}).Where("parked_at IS NOT NULL").Update("parked_at", nil).Error)
	p.submit("spring", 8, 600) // some by the table: what it deletes there must not be what waits again
	eventually(t, "posted", func() bool { return len(r.seqs("spring")) == 593 })
	require.NoError(t, db.Where("name LIKE 'webhooks:%'").Delete(&stored.Setting{}).Error)
	eventually(t, "read again", func() bool {
		groups, err := scripts.Groups(t.Context(), 0)
		require.NoError(t, err)
		return slices.ContainsFunc(groups, func(g lua.Group) bool { return g.Name == webhooks.Group && g.Delivered == lua.EntryID{} })
	})
	eventually(t, "posted", func() bool { return len(r.seqs("spring")) == 600 })
	require.Zero(t, parked())
}
