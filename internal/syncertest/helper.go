package syncertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/redisconn"
	"dibs/internal/sqlstore"
)

// planVariable holds what a helper process is to do, in JSON. A helper is a copy of the test binary.
const planVariable = "SYNCERTEST_PLAN"

// RunIfHelper runs the body of a helper process when this process is one, and does not return then. It has a minute, the database that
// its plan names as DSN or Path, and the Redis that the plan names, if any.
func RunIfHelper[P any](run func(ctx context.Context, plan P, db *gorm.DB, rdb redis.UniversalClient) error) {
	text := os.Getenv(planVariable)
	if text == "" {
		return
	}
	if err := runHelper([]byte(text), run); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runHelper[P any](text []byte, run func(ctx context.Context, plan P, db *gorm.DB, rdb redis.UniversalClient) error) error {
	var plan P
	var servers struct{ DSN, Path, Redis string }
	if err := errors.Join(json.Unmarshal(text, &plan), json.Unmarshal(text, &servers)); err != nil { //nolint:musttag // the plan is Go's own
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := sqlstore.Open(ctx, sqlstore.Config{DSN: servers.DSN, Path: servers.Path, Logger: Quiet()})
	if err != nil {
		return err
	}
	var rdb redis.UniversalClient
	if servers.Redis != "" {
		rdb, err = redisconn.Connect(servers.Redis)
		if err != nil {
			return err
		}
	}
	return run(ctx, plan, db, rdb)
}

// DieHere ends this process as a crash would.
func DieHere() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

// RunHelper runs a helper with a plan to its end. It returns what the helper printed, and whether it was killed.
func RunHelper(t testing.TB, plan any) (printed string, killed bool) {
	t.Helper()
	text, err := json.Marshal(plan)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this very program
	cmd.Env = append(os.Environ(), planVariable+"="+string(text))
	var out, errs strings.Builder
	cmd.Stdout = &out
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		require.Equal(t, "signal: killed", err.Error(), errs.String())
		return out.String(), true
	}
	return out.String(), false
}
