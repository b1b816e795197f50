package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// guideBlock is a block of commands of a guide that a test runs, with its name.
var guideBlock = regexp.MustCompile("(?s)<!-- tested: ([a-z ]+) -->\n```sh\n(.*?)```")

// guideTimeout bounds the commands of one block.
const guideTimeout = 5 * time.Minute

// guide is a page of docs/guides, and a shell in which its commands run as they
// stand there, one block after the other.
type guide struct {
	t      *testing.T
	blocks map[string]string
	folder string            // where the shell is
	env    map[string]string // what the guide takes for granted
	tried  map[string]bool
}

// openGuide reads a page. Every block of it must have run when the test ends.
func openGuide(t *testing.T, page string, s *servers, env map[string]string) *guide {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/guides", page))
	require.NoError(t, err)
	g := &guide{t: t, blocks: map[string]string{}, folder: t.TempDir(), tried: map[string]bool{}, env: map[string]string{
		"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn, "DIBS_PARTITIONS": fmt.Sprint(s.partitions),
	}}
	for _, m := range guideBlock.FindAllStringSubmatch(string(text), -1) {
		require.NotContains(t, g.blocks, m[1])
		g.blocks[m[1]] = m[2]
	}
	maps.Copy(g.env, env)
	sql, err := mysql.ParseDSN(s.dsn)
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(sql.Addr)
	require.NoError(t, err)
	options := fmt.Sprintf("[client]\nprotocol=tcp\nhost=%s\nport=%s\nuser=%s\npassword=%s\n", host, port, sql.User, sql.Passwd)
	require.NoError(t, os.WriteFile(filepath.Join(g.folder, ".my.cnf"), []byte(options), 0o600))
	g.env["DATABASE"], g.env["HOME"] = sql.DBName, g.folder
	require.NoError(t, os.Symlink(binary(t), filepath.Join(g.folder, "dibs")))
	g.env["PATH"] = g.folder + ":" + os.Getenv("DIBS_TEST_MYSQL_TOOLS") + ":" + os.Getenv("PATH")
	t.Cleanup(func() {
		for name := range g.blocks {
			require.True(t, t.Failed() || g.tried[name], "block %q of %s was not tried", name, page)
		}
	})
	return g
}

// run runs a block; every command in it must succeed. It returns what was
// printed.
func (g *guide) run(name string) string {
	g.t.Helper()
	require.Contains(g.t, g.blocks, name)
	g.tried[name] = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.t.Context()), guideTimeout)
	defer cancel()
	var out bytes.Buffer
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", g.blocks[name])
	shell.Dir, shell.Env = g.folder, environ(g.env)
	shell.Stdout, shell.Stderr = &out, &out
	<-spawn(g.t, shell)
	require.Zero(g.t, shell.ProcessState.ExitCode(), "%s\n%s", g.blocks[name], &out)
	return out.String()
}

// TestEveryGuideIsFollowed: no page and no block of commands is without a test.
func TestEveryGuideIsFollowed(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/guides/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	tests, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var all strings.Builder
	for _, path := range tests {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all.Write(text)
	}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Len(t, guideBlock.FindAllString(string(text), -1), strings.Count(string(text), "```sh"), "a block of %s is not run", path)
		require.Contains(t, all.String(), fmt.Sprintf("openGuide(t, %q", filepath.Base(path)))
	}
}
