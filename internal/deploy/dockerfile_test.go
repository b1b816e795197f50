package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// instruction is a Dockerfile line, with continuations joined.
type instruction struct{ verb, rest string }

// readDockerfile splits a Dockerfile into stages. It handles
// comments and continuations, which is all ours uses.
func readDockerfile(t *testing.T, text string) (stages [][]instruction) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	joined := strings.ReplaceAll(strings.Join(lines, "\n"), "\\\n", " ")
	for line := range strings.Lines(joined) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if verb == "FROM" {
			stages = append(stages, nil)
		}
		require.NotEmpty(t, stages, "starts with FROM")
		last := len(stages) - 1
		stages[last] = append(stages[last], instruction{verb, strings.TrimSpace(rest)})
	}
	return stages
}

func all(stage []instruction, verb string) (rests []string) {
	for _, i := range stage {
		if i.verb == verb {
			rests = append(rests, i.rest)
		}
	}
	return rests
}

func dockerfile(t *testing.T) (build, final []instruction) {
	t.Helper()
	text, err := os.ReadFile(root + "Dockerfile")
	require.NoError(t, err)
	stages := readDockerfile(t, string(text))
	require.Len(t, stages, 2)
	return stages[0], stages[1]
}

func TestImageIsBuiltByTheGoOfTheModule(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(text)
	require.NotNil(t, version)
	build, _ := dockerfile(t)
	require.Regexp(t, `^golang:`+regexp.QuoteMeta(string(version[1]))+`-[a-z]+ AS build$`, build[0].rest)
}

func TestImageHoldsTheBinaryAndLittleElse(t *testing.T) {
	t.Parallel()
	build, final := dockerfile(t)
	require.Contains(t, strings.Join(all(build, "RUN"), "\n"), "CGO_ENABLED=0", "there is no libc")
	require.Equal(t, "scratch", final[0].rest)
	require.Empty(t, all(final, "RUN"))
	copies := all(final, "COPY")
	require.Len(t, copies, 3)
	for _, c := range copies {
		require.True(t, strings.HasPrefix(c, "--from=build "), c)
	}
	require.Contains(t, strings.Join(copies, "\n"), "/etc/ssl/certs/ca-certificates.crt")
	require.Equal(t, []string{`["/dibs"]`}, all(final, "ENTRYPOINT"), "no shell that would swallow SIGTERM")
}

// The linker ignores unknown names, so the variables must exist.
func TestBuildsTellTheirVersion(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(root + "internal/build/build.go")
	require.NoError(t, err)
	require.Contains(t, string(source), "\nvar version, commit, date string")
	for _, file := range []string{"Makefile", "Dockerfile"} {
		text, err := os.ReadFile(root + file)
		require.NoError(t, err)
		var set []string
		for _, m := range regexp.MustCompile(`-X dibs/internal/build\.(\w+)=\$`).FindAllStringSubmatch(string(text), -1) {
			set = append(set, m[1])
		}
		require.Equal(t, []string{"version", "commit", "date"}, set, file)
	}
	_, final := dockerfile(t)
	for _, label := range []string{"version=$VERSION", "revision=$COMMIT", "created=$DATE"} {
		require.Contains(t, strings.Join(all(final, "LABEL"), " "), "org.opencontainers.image."+label)
	}
}

func TestImageRunsAsNobody(t *testing.T) {
	t.Parallel()
	_, final := dockerfile(t)
	users := all(final, "USER")
	require.Len(t, users, 1)
	require.Regexp(t, `^[1-9][0-9]*:[1-9][0-9]*$`, users[0], "a number, so that it can be checked without a passwd file")
}

func TestSecretsStayOutOfTheImage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + ".dockerignore")
	require.NoError(t, err)
	ignored := strings.Split(string(text), "\n")
	for _, name := range []string{".env", ".git", "data", ".tools"} {
		require.Contains(t, ignored, name)
	}
	text, err = os.ReadFile(root + ".gitignore")
	require.NoError(t, err)
	require.Contains(t, strings.Split(string(text), "\n"), "/.env")
}
