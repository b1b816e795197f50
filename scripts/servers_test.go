// Package scripts_test runs the shell scripts on simulated machines.
package scripts_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// machine is a PATH with the basic tools and a test's additions.
type machine struct {
	t      *testing.T
	bin    string
	policy string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	dir := t.TempDir()
	m := machine{t: t, bin: filepath.Join(dir, "bin"), policy: filepath.Join(dir, "policy-rc.d")}
	require.NoError(t, os.Mkdir(m.bin, 0o700))
	m.has("python3", "")
	for _, tool := range []string{"bash", "cat", "chmod", "env", "head", "rm", "sed", "sh", "tee"} {
		path, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(m.bin, tool)))
	}
	return m
}

// has adds a program: the lines of a shell script.
func (m machine) has(name, script string) machine {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	return m
}

func (m machine) root() machine { return m.has("id", "echo 0") }

// installer adds a program that appends its call to the file
// "calls" and installs a redis-server and a mariadbd.
func (m machine) installer(name string) machine {
	return m.has(name, `echo "`+name+` $*" >> `+m.bin+`/calls
case "$*" in *install*)
  [ -x `+m.policy+` ] && echo "guarded" >> `+m.bin+`/calls
  printf '#!/bin/sh\n' | tee `+m.bin+`/redis-server `+m.bin+`/mariadbd `+m.bin+`/python3 >/dev/null
  chmod 755 `+m.bin+`/redis-server `+m.bin+`/mariadbd `+m.bin+`/python3
esac`)
}

func (m machine) run() (stdout, stderr string, err error) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), filepath.Join(m.bin, "bash"), "servers")
	cmd.Env = []string{"PATH=" + m.bin, "SERVERS_FOLDERS=" + m.bin, "SERVERS_POLICY=" + m.policy, "SERVERS_VALKEY=" + filepath.Join(m.bin, "valkey")}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err = cmd.Run()
	return out.String(), complaint.String(), err
}

func (m machine) calls() string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.bin, "calls"))
	require.NoError(m.t, err)
	return string(text)
}

func TestServersNamesWhatIsInstalled(t *testing.T) {
	t.Parallel()
	m := newMachine(t).
		has("valkey-server", "echo 'Valkey server v=8.0.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1'").
		has("mysqld", "echo '/usr/sbin/mysqld  Ver 8.4.6 for Linux on x86_64 (MySQL Community Server)'")
	out, complaint, err := m.run()
	require.NoError(t, err)
	require.Equal(t, "Redis: "+m.bin+"/valkey-server (8.0.1)\nSQL: "+m.bin+"/mysqld (8.4.6)\nPython: "+m.bin+"/python3\n"+
		"Valkey: none; install valkey-server, or the tests that compare it with Redis are skipped\n", out)
	require.Empty(t, complaint)
}

func TestServersInstallsWithAptAndStartsNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t).has("docker", "exit 1").root().installer("apt-get")
	out, _, err := m.run()
	require.NoError(t, err)
	require.Equal(t, "apt-get -qq update\n"+
		"apt-get -qq install -y --no-install-recommends redis-server mariadb-server\nguarded\n", m.calls())
	require.NoFileExists(t, m.policy, "the guard is gone again")
	require.Contains(t, out, "/mariadbd")

	_, _, err = m.run()
	require.NoError(t, err)
	require.NotRegexp(t, "(?s)update.*update", m.calls(), "the second run installs nothing")
}

func TestServersSaysWhatToInstall(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]machine{
		"no installer":                    newMachine(t).has("id", "echo 1000"),
		"no rights":                       newMachine(t).has("id", "echo 1000").has("sudo", "exit 1").installer("apt-get"),
		"a failing installer":             newMachine(t).root().has("apt-get", "exit 100"),
		"an installer that is not honest": newMachine(t).root().has("apt-get", "exit 0"),
	} {
		out, complaint, err := m.run()
		require.Error(t, err, name)
		require.Empty(t, out, name)
		require.Contains(t, complaint, "a Redis 7 or newer", name)
		require.Contains(t, complaint, "a MariaDB 10.6 or newer, or a MySQL 8 or newer", name)
		require.NoFileExists(t, m.policy, name)
	}
}
