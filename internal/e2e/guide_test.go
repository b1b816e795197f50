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

// guideBlock is a guide's block of commands with a name, run by a test.
var guideBlock = regexp.MustCompile("(?s)<!-- tested: ([a-z ]+) -->\n```sh\n(.*?)```")

const guideTimeout = 5 * time.Minute

// guide is a page of docs/guides, with a shell that runs its
// blocks of commands in order.
type guide struct {
	t      *testing.T
	blocks map[string]string
	folder string            // the shell's
	env    map[string]string // assumed by the guide
	tried  map[string]bool
}

// openGuide reads a page. All its blocks must have run by the test's end.
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

// run runs a block and returns its output. Every command must succeed.
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

// Every page and block of commands needs a test.
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
