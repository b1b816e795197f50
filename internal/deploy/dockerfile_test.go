package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The image is the binary and certificates, for a user without rights and
// without a shell that would swallow SIGTERM.
func TestImageHoldsTheBinaryAndLittleElse(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "go.mod"))
	require.NotNil(t, version)
	build, final, found := strings.Cut(read(t, "Dockerfile"), "\nFROM scratch\n")
	require.True(t, found)
	require.Contains(t, build, "\nFROM golang:"+version[1]+"-")
	require.Contains(t, build, "CGO_ENABLED=0", "there is no libc")
	require.NotContains(t, final, "\nRUN ")
	require.Equal(t, 3, strings.Count(final, "\nCOPY --from=build "))
	require.Equal(t, 3, strings.Count(final, "COPY "))
	require.Contains(t, final, "/etc/ssl/certs/ca-certificates.crt")
	require.Contains(t, final, "\nENTRYPOINT [\"/dibs\"]\n")
	require.Regexp(t, `\nUSER [1-9][0-9]*:[1-9][0-9]*\n`, final, "a number, so that it can be checked without a passwd file")
}

// The linker ignores unknown names, so the variables must exist.
func TestBuildsTellTheirVersion(t *testing.T) {
	t.Parallel()
	require.Contains(t, read(t, "internal/build/build.go"), "\nvar version, commit, date string")
	for _, file := range []string{"Makefile", "Dockerfile"} {
		var set []string
		for _, m := range regexp.MustCompile(`-X dibs/internal/build\.(\w+)=\$`).FindAllStringSubmatch(read(t, file), -1) {
			set = append(set, m[1])
		}
		require.Equal(t, []string{"version", "commit", "date"}, set, file)
	}
}

func TestSecretsStayOutOfTheImage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + ".dockerignore")
	require.NoError(t, err)
	ignored := strings.Split(string(text), "\n")
	for _, name := range []string{".env", ".git", "data", ".tools"} {
		require.Contains(t, ignored, name)
	}
	require.Contains(t, strings.Split(read(t, ".gitignore"), "\n"), "/.env")
}
