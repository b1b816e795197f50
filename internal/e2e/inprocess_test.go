package e2e

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"dibs/api"
	"dibs/api/claiming"
	"dibs/consumer"
	"dibs/internal/audit"
	bookkeeping "dibs/internal/ledger"
	"dibs/internal/redisconn"
	"dibs/internal/softstate"
	"dibs/internal/sqlstore"
	"dibs/internal/tracing"
	"dibs/lua"
	"dibs/syncer/campaigns"
	"dibs/syncer/lots"
	"dibs/syncer/resolve"
	"dibs/syncer/retention"
	"dibs/syncer/shards"
	"dibs/syncer/writer"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// swaps are what a test puts in the place of a part. Nil leaves the part as it is.
type swaps struct {
	apis    int                                                                        // servers; 0 is 1
	options func(server int) lua.Options                                               // of the scripts of one API server
	redis   func(rdb redis.UniversalClient)                                            // has the client of the scripts before they are used
	claimer func(rdb redis.UniversalClient, claimer claiming.Claimer) claiming.Claimer // in every API server
	clock   func(server int) (now func() time.Time)                                    // of one API server
	tracer  *tracing.Tracer                                                            // of all parts
}

// inProcess is the claim path of one process, wired as package cmd wires it, but for the swaps.
type inProcess struct {
	servers
	t       *testing.T
	swaps   swaps
	urls    []string
	finance *reader
}

var quiet = slog.New(slog.DiscardHandler)

// newInProcess starts the API servers; startConsumer starts the consumer.
func newInProcess(t *testing.T, w swaps) *inProcess {
	t.Helper()
	p := &inProcess{servers: newServers(t, wishes{}), t: t, swaps: w}
	for i := range or1(w.apis) {
		p.urls = append(p.urls, p.serve(i))
	}
	return p
}

// serve starts an API server and returns its address.
func (p *inProcess) serve(i int) string {
	t := p.t
	t.Helper()
	rdb, err := redisconn.Connect(p.redisURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	if p.swaps.redis != nil {
		p.swaps.redis(rdb)
	}
	var options lua.Options
	if p.swaps.options != nil {
		options = p.swaps.options(i)
	}
	scripts, err := lua.New(rdb, options)
	require.NoError(t, err)
	db, err := sqlstore.Open(t.Context(), sqlstore.Config{DSN: p.dsn, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
	var claimer claiming.Claimer = scripts
	if p.swaps.claimer != nil {
		claimer = p.swaps.claimer(rdb, scripts)
	}
	cfg := api.Config{Logger: quiet, QueueWait: upTimeout, CallTimeout: upTimeout, Tracer: p.swaps.tracer} // a busy machine is no story
	if p.swaps.clock != nil {
		cfg.Clock = p.swaps.clock(i)
	}
	loader := lots.New(db, scripts, quiet, lots.Settle, nil)
	server, err := api.New(cfg, api.Deps{
		Claimer: claimer, States: scripts, Shared: softstate.New(rdb, scripts), Loader: loader,
		Campaigns: campaigns.New(db, scripts, quiet), Mover: shards.New(db, scripts, loader, nil), Claims: campaigns.NewClaims(db),
		Resolver: resolve.NewResolver(db, resolve.NewRelay(db, scripts, nil), quiet), Applied: writer.NewAppliedStreams(db, scripts), Audit: audit.NewLog(db), Groups: retention.NewRegistry(db, scripts, []string{"syncer"}), Ledger: bookkeeping.New(db), Ready: func(context.Context) error { return nil },
	})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	runUntilEnd(t, func(ctx context.Context) error { return server.Serve(ctx, listener) })
	return "http://" + listener.Addr().String()
}

// startConsumer starts the consumer and a finance service.
func (p *inProcess) startConsumer() {
	t := p.t
	t.Helper()
	db, err := sqlstore.Open(t.Context(), sqlstore.Config{DSN: p.dsn, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
	log, err := writer.New(writer.Config{DB: db, Logger: quiet, Tracer: p.swaps.tracer})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close(context.Background())) })
	reader, err := consumer.NewApplier(consumer.ApplierConfig{
		Client: p.rdb, Name: "one", Log: log, Logger: quiet, Registerer: prometheus.NewRegistry(), Tracer: p.swaps.tracer,
	})
	require.NoError(t, err)
	runUntilEnd(t, reader.Run)
	p.finance = readAlong(t, p.rdb, "finance", 1)
}

// runUntilEnd runs a role until the end of the test, and expects that it ends well.
func runUntilEnd(t *testing.T, run func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}
