// Package deploy_test checks the deployment files, as far as
// possible without a container engine.
package deploy_test

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"dibs/internal/config"
	"dibs/internal/migrations"
)

const root = "../../"

// ours are the services of our image, with their commands.
var ours = map[string]string{"migrate": "migrate", "api": "api", "consumer": "consumer", "syncer": "syncer", "finance": "finance"}

// filledEnv is .env.example with every empty variable filled in.
func filledEnv(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open(root + ".env.example")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	env := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(name, "#") {
			require.Empty(t, value, "an example holds no value that someone might keep: %s", name)
			env[name] = "secret" + strings.ToLower(strings.ReplaceAll(name, "_", ""))
		}
	}
	return env
}

func load(t *testing.T, env map[string]string) (*types.Project, error) {
	t.Helper()
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, name+"="+value)
	}
	options, err := cli.NewProjectOptions([]string{root + "docker-compose.yml"},
		cli.WithEnv(pairs), cli.WithResolvedPaths(true), cli.WithInterpolation(true), cli.WithConsistency(true))
	require.NoError(t, err)
	return options.LoadProject(t.Context())
}

func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(t, filledEnv(t))
	require.NoError(t, err)
	return p
}

func service(t *testing.T, p *types.Project, name string) types.ServiceConfig {
	t.Helper()
	s, err := p.GetService(name)
	require.NoError(t, err)
	return s
}

func TestOurServicesStartInOrderAndMayDoNothingButRun(t *testing.T) {
	t.Parallel()
	p := project(t)
	require.ElementsMatch(t, []string{"redis", "mysql", "migrate", "grants", "api", "consumer", "syncer", "finance"}, p.ServiceNames())
	for name, command := range ours {
		s := service(t, p, name)
		require.Equal(t, types.ShellCommand{command}, s.Command, name)
		require.Equal(t, service(t, p, "api").Image, s.Image, "one image")
		require.NotNil(t, s.Build, name)

		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		require.Empty(t, s.CapAdd, name)
		require.Empty(t, s.User, "the image's own, which is not root")
		require.Empty(t, s.Volumes, name)

		require.Equal(t, types.ServiceConditionHealthy, s.DependsOn["redis"].Condition, name)
		require.Equal(t, types.ServiceConditionHealthy, s.DependsOn["mysql"].Condition, name)
		if name != "migrate" {
			require.Equal(t, types.ServiceConditionCompletedSuccessfully, s.DependsOn["grants"].Condition, name)
		}
	}
	for _, name := range []string{"redis", "mysql"} {
		check := service(t, p, name).HealthCheck
		require.NotNil(t, check, name)
		require.NotNil(t, check.Interval, name)
		require.NotNil(t, check.Timeout, name)
		require.NotNil(t, check.Retries, name)
	}
}

func TestEveryVariableIsRequired(t *testing.T) {
	t.Parallel()
	for missing := range filledEnv(t) {
		env := filledEnv(t)
		delete(env, missing)
		_, err := load(t, env)
		require.ErrorContains(t, err, missing, "a missing secret stops the start; it is never an empty one")
	}
}

func TestEveryServiceComesBackStopsInTimeAndIsOnLoopback(t *testing.T) {
	t.Parallel()
	published := 0
	for name, s := range project(t).Services {
		require.NotEqual(t, "host", s.NetworkMode, name)
		for _, port := range s.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, name)
			published++
		}
		require.Contains(t, []string{types.RestartPolicyUnlessStopped, "on-failure:5"}, s.Restart, name)
		require.NotNil(t, s.StopGracePeriod, name)
		require.GreaterOrEqual(t, time.Duration(*s.StopGracePeriod), 20*time.Second, name)
		require.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		require.False(t, s.Privileged, name)
	}
	require.Equal(t, 3, published, "api, redis, mysql")
}

func TestRedisKeepsEverything(t *testing.T) {
	t.Parallel()
	s := service(t, project(t), "redis")
	command := strings.Join(s.Command, " ")
	require.Contains(t, command, "--appendonly yes")
	require.Contains(t, command, "--appendfsync everysec")
	require.Contains(t, command, "--maxmemory-policy noeviction")
	require.NotContains(t, command, "secret", "a command line is seen by everybody on the machine")
	require.Contains(t, command, `"$REDIS_DEFAULT_PASSWORD" "$REDIS_PASSWORD" >/run/users.acl`)
	require.Equal(t, "/data", s.Volumes[0].Target)
	require.Equal(t, types.VolumeTypeVolume, s.Volumes[0].Type)
}

// The users are those of docs/security.md, whose rights a test
// of cmd verifies.
func TestServersHaveTheUsersOfTheDocs(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile(root + "docs/security.md")
	require.NoError(t, err)
	_, rights, found := strings.Cut(strings.Join(service(t, project(t), "redis").Command, " "), "user dibs on >%s ")
	require.True(t, found)
	rights, _, _ = strings.Cut(rights, `\n`)
	require.Contains(t, string(docs), "\nuser dibs on >PASSWORD "+rights+"\n")
	grants, err := os.ReadFile(root + "deploy/compose/run-grants.sql")
	require.NoError(t, err)
	want := strings.Join(migrations.Grants(migrations.AccountRoles, "dibs", "dibs_run", "%"), "\n")
	require.Contains(t, string(grants), "USE dibs;\n"+want+"\n", "dibs grants --user dibs_run")
	users, err := os.ReadFile(root + "deploy/compose/mysql-users.sh")
	require.NoError(t, err)
	for line := range strings.Lines(string(users)) {
		if strings.HasPrefix(line, "GRANT ") {
			require.Contains(t, string(docs), line)
		}
	}
	for _, s := range project(t).Services {
		require.NotContains(t, strings.Join(slices.Concat(s.Command, s.Entrypoint), " "), "secret", s.Name)
	}
}

// Otherwise the file could set a variable that Dibs doesn't
// read, or misreads.
func TestDibsReadsEveryVariable(t *testing.T) {
	t.Parallel()
	p := project(t)
	for name := range ours {
		s := service(t, p, name)
		var environ []string
		for key, value := range s.Environment {
			require.NotNil(t, value, "%s: %s", name, key)
			environ = append(environ, key+"="+*value)
		}
		c, err := config.Load(environ, nil)
		require.NoError(t, err, name)
		require.False(t, c.Embedded(), name)
		require.Equal(t, "redis://dibs:secretredispassword@redis:6379/0", c.RedisURL, name)
		if name == "migrate" {
			require.Equal(t, "dibs_migrate:secretmysqlmigratepassword@tcp(mysql:3306)/dibs", c.MySQLDSN)
		} else {
			require.Equal(t, "dibs_run:secretmysqlpassword@tcp(mysql:3306)/dibs", c.MySQLDSN, name)
		}
		require.Less(t, c.ShutdownTimeout, time.Duration(*s.StopGracePeriod), name)
		if name == "api" {
			require.NotEmpty(t, c.AdminToken)
			require.NotEmpty(t, c.StorefrontToken)
		} else {
			require.Empty(t, c.AdminToken+c.StorefrontToken, "%s needs no such tokens", name)
		}
		require.Equal(t, []string{"syncer", "finance"}, c.Groups, "each has its service")
		require.Equal(t, name == "consumer" || name == "syncer" || name == "finance", c.MetricsAddr != "", name)
		require.Equal(t, name != "migrate", c.ViewerToken != "", "%s: /metrics asks for it", name)
	}
}
