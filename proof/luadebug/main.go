// Luadebug opens Redis' Lua debugger on a script of Dibs: `go
// run ./proof/luadebug claim`, or `make lua-debug SCRIPT=claim`.
// It starts a temporary Redis, loads a campaign with claims, and
// takes the arguments from the Go code that calls the script, so
// they are always right. It cleans up at the end.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

const scripts = "lua"

const startWithin = 30 * time.Second

var errUsage = errors.New("usage")

func main() {
	signal.Ignore(os.Interrupt) // Ctrl-C is for the debugger
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "lua-debug: "+err.Error())
		os.Exit(1)
	}
}

// run debugs the script named by args, from the module's root.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) error {
	names, err := scriptNames(".")
	if err != nil {
		return err
	}
	if len(args) != 1 || !slices.Contains(names, args[0]) {
		return fmt.Errorf("%w: make lua-debug SCRIPT=%s", errUsage, strings.Join(names, "|"))
	}
	defer testenv.Close()
	program := testenv.NewProgram(ctx)
	defer func() { _ = program.Close() }() // the Redis holds nothing that matters
	var addr string
	if err := program.Try(func() { addr = testenv.Redis(program).Addr() }); err != nil {
		return err
	}
	call, err := callOf(ctx, addr, args[0])
	if err != nil {
		return err
	}
	if err := program.Try(func() { call.path = filepath.Join(program.TempDir(), args[0]+".lua") }); err != nil {
		return err
	}
	if err := os.WriteFile(call.path, []byte(lua.Source(args[0])), 0o600); err != nil { //nolint:gosec // one of scriptNames
		return err
	}
	_, _ = fmt.Fprintf(errs, "%s: %d keys, %d arguments. n steps, p prints locals, b LINE breaks, c goes on, quit ends.\n",
		args[0], len(call.keys), len(call.args))
	_, port, _ := strings.Cut(addr, ":")
	words := append([]string{"-p", port}, call.cliArgs()...)
	cmd := exec.CommandContext(ctx, "redis-cli", words...) //nolint:gosec // what callOf made
	cmd.Stdin = in
	cmd.Stdout = out
	cmd.Stderr = errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("redis-cli: %w", err)
	}
	return nil
}

func scriptNames(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, scripts, "*.lua"))
	if err != nil || len(files) == 0 {
		return nil, errors.New("no scripts here: run it from the root of the module")
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".lua")
	}
	return files, nil
}

// callOf loads the fixture and returns the Go code's call of a script.
func callOf(ctx context.Context, addr, name string) (call, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	rdb, err := redisconn.Connect("redis://" + addr)
	if err != nil {
		return call{}, err
	}
	defer func() { _ = rdb.Close() }()
	heard := &tap{source: lua.Source(name)}
	rdb.AddHook(heard)
	for range capturesMax {
		if err := perform(ctx, rdb, heard, name); err != nil {
			return call{}, err
		}
		// a command line can't contain it; ids and digests are random bytes
		if !heard.call.hasZero() {
			return heard.call, nil
		}
	}
	return call{}, fmt.Errorf("%s: every call of it had a byte 0", name)
}

// capturesMax limits the attempts for a call without a byte 0:
// every third claim has one.
const capturesMax = 100
