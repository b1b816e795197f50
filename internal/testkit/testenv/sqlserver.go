package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

// errNoSQLServer means that this machine has neither MariaDB nor MySQL.
var errNoSQLServer = errors.New("testenv: neither mariadbd nor mysqld is installed and no Docker engine answers: " +
	"install MariaDB 10.6 or newer (Debian and Ubuntu: mariadb-server; Homebrew: mariadb), or run `make servers`, which does it")

// mariaDBImage is for machines without a server program. Tests need
// nothing newer.
const mariaDBImage = "mariadb:10.11"

// installTimeout limits the creation of the system tables,
// usually half a second.
const installTimeout = 2 * time.Minute

// MySQLServer is a real MariaDB or MySQL on 127.0.0.1, user root
// without a password. Its methods fail the test on errors.
type MySQLServer struct {
	control

	addr string
}

// SQLServer starts the test's own MariaDB, or MySQL if only that is
// installed, with durable commits (innodb_flush_log_at_trx_commit=1), and
// ends it with the test. Each option is a server argument
// ("--max-connections=20", "--datadir=..."). Database is far cheaper for a
// plain database.
func SQLServer(t testing.TB, options ...string) *MySQLServer {
	t.Helper()
	srv, addr, closeAll, err := startSQL(options)
	require.NoError(t, err)
	t.Cleanup(func() { closeChecked(t, closeAll) })
	return &MySQLServer{control: control{t: t, srv: srv}, addr: addr}
}

// Addr returns host:port.
func (s *MySQLServer) Addr() string { return s.addr }

// DSN returns a go-sql-driver DSN for a database of this server (parseTime,
// interpolateParams, UTC). It creates a missing database if the server runs.
// An empty name gives a DSN without a database.
func (s *MySQLServer) DSN(db string) string {
	s.t.Helper()
	if db != "" && s.srv.IsRunning() {
		require.NoError(s.t, execSQL(s.t.Context(), dsn(s.addr, ""), "CREATE DATABASE IF NOT EXISTS "+quoteName(db)))
	}
	return dsn(s.addr, db)
}

func startSQL(options []string) (srv *machine.Server, addr string, closeAll func() error, err error) {
	p, err := machine.NewHome("sql")
	if err != nil {
		return nil, "", nil, err
	}
	at, err := sqlHost(p, options)
	if err != nil {
		p.Remove()
		return nil, "", nil, err
	}
	addr = machine.Loopback(p.Port)
	srv = &machine.Server{Name: "SQL server", Host: at, Log: p.Log(), Probe: func(ctx context.Context) error {
		return execSQL(ctx, dsn(addr, ""), "SELECT 1")
	}}
	closeAll = func() error { err := srv.Close(); p.Remove(); return err }
	if err := srv.Start(); err != nil {
		return nil, "", nil, errors.Join(err, closeAll())
	}
	return srv, addr, closeAll, nil
}

// sqlHost picks an installed MariaDB, else MySQL, else Docker,
// and creates the system tables.
func sqlHost(p machine.Home, options []string) (machine.Host, error) {
	program, err := machine.FindProgram("mariadbd", "mysqld")
	if err != nil {
		if machine.DockerAnswers() != nil {
			return nil, errNoSQLServer
		}
		return mariaDBContainer(p, options), nil
	}
	data := filepath.Join(p.Folder, "data")
	for _, option := range options {
		if dir, is := strings.CutPrefix(option, "--datadir="); is {
			data = dir
		}
	}
	maria := isMariaDB(program)
	if err := installSQL(program, maria, p.Folder, data); err != nil {
		return nil, err
	}
	args := append([]string{"--no-defaults"}, asRoot()...)
	args = append(args, "--datadir="+data, "--tmpdir="+p.Folder, "--bind-address=127.0.0.1", portArg(p.Port),
		"--socket="+filepath.Join(p.Folder, "sock"), "--pid-file="+filepath.Join(p.Folder, "pid"), "--skip-log-bin")
	if !maria {
		args = append(args, "--mysqlx=OFF")
	}
	args = append(args, smallAndDurable()...)
	if maria { // MySQL's root is valid for the name localhost only
		args = append(args, "--skip-name-resolve")
	}
	return machine.Process{Program: program, Args: append(args, options...), Folder: p.Folder}, nil
}

func mariaDBContainer(p machine.Home, options []string) machine.Container {
	c := machine.NewContainer(p.Folder, mariaDBImage, p.Port)
	c.Inside = 3306
	c.Data = "/var/lib/mysql"
	c.Env = []string{"MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1"}
	c.Args = append(append(smallAndDurable(), "--skip-name-resolve"), options...)
	return c
}

// smallAndDurable are arguments of MariaDB and MySQL: fast to
// start, small, with every commit in the log before its reply.
func smallAndDurable() []string {
	return []string{
		"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=64M", "--performance-schema=OFF",
		"--max-connections=400", "--character-set-server=utf8mb4",
	}
}

// installSQL creates the system tables in an empty data folder.
// Temporary tables get a folder per server: a starting server
// empties it, and would delete those of other tests' servers.
func installSQL(program string, maria bool, tmp, data string) error {
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	args := append([]string{"--no-defaults"}, asRoot()...)
	args = append(args, "--datadir="+data, "--tmpdir="+tmp)
	if maria {
		installer, err := machine.FindProgram("mariadb-install-db", "mysql_install_db")
		if err != nil {
			return fmt.Errorf("%w: mariadb-install-db (it comes with mariadb-server)", err)
		}
		program = installer
		args = append(args, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
	} else {
		args = append(args, "--initialize-insecure")
	}
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("testenv: create the system tables: %w\n%s", err, out)
	}
	return nil
}

// isMariaDB reports whether a program is MariaDB rather than
// MySQL. Their file names are often the same.
func isMariaDB(program string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	out, _ := exec.CommandContext(ctx, program, "--no-defaults", "--version").Output()
	return strings.Contains(string(out), "MariaDB")
}

// dsn returns the DSN of a database at addr, as production code expects it.
func dsn(addr, db string) string {
	c := mysql.NewConfig()
	c.User = "root"
	c.Net = "tcp"
	c.Addr = addr
	c.DBName = db
	return withOptions(c).FormatDSN()
}

// withOptions sets the options of all tests' DSNs: UTC, and
// placeholders filled in by the client.
func withOptions(c *mysql.Config) *mysql.Config {
	c.ParseTime = true
	c.InterpolateParams = true
	c.Loc = time.UTC
	if c.Timeout == 0 {
		c.Timeout = machine.ProbeTimeout * 5
	}
	return c
}

// execSQL runs one statement on its own connection.
func execSQL(ctx context.Context, dsn, statement string) error {
	db, err := openQuiet(dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("testenv: %s: %w", statement, err)
	}
	return nil
}

// openQuiet opens a DSN without the driver's log, which reports
// refused connections while a server starts.
func openQuiet(dsn string) (*sql.DB, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("testenv: DSN: %w", err)
	}
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("testenv: DSN: %w", err)
	}
	return sql.OpenDB(connector), nil
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func portArg(port int) string { return "--port=" + strconv.Itoa(port) }

// asRoot returns the argument that database servers require to run as root.
func asRoot() []string {
	if os.Getuid() != 0 {
		return nil
	}
	return []string{"--user=root"}
}
