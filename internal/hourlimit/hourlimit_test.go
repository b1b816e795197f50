package hourlimit_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

// filesMost is how many production files a new limit may touch.
const filesMost = 8

const (
	patchFile = "testdata/per_user_per_hour.patch"
	testFile  = "testdata/limit_test.go"
)

// patched are the files of the patch, as paths below the root of the module.
func patched(t *testing.T) (files []string) {
	t.Helper()
	patch, err := os.ReadFile(patchFile)
	require.NoError(t, err)
	for line := range strings.Lines(string(patch)) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "+++ b/"); found {
			files = append(files, path)
		}
	}
	return files
}

func TestALimitTouchesFewFiles(t *testing.T) {
	t.Parallel()
	files := patched(t)
	require.NotEmpty(t, files)
	require.LessOrEqual(t, len(files), filesMost, "%v", files)
	for _, file := range files {
		require.NotContains(t, file, "_test", "production files are counted")
	}
}

// overlay says where the go command finds files instead of where they are; see go help build.
type overlay struct{ Replace map[string]string }

// build is the module with the patch, but for some files: an overlay for the go command.
func build(t *testing.T, without ...string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	folder := t.TempDir()
	var o overlay
	o.Replace = map[string]string{filepath.Join(root, "internal/hourlimit/hourlimit_test.go"): filepath.Join(root, "internal/hourlimit", testFile)}
	for _, file := range patched(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if !os.IsNotExist(err) {
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(filepath.Join(folder, filepath.Dir(file)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(folder, file), text, 0o600))
		}
		if !slices.Contains(without, file) {
			o.Replace[filepath.Join(root, file)] = filepath.Join(folder, file)
		}
	}
	patch, err := filepath.Abs(patchFile)
	require.NoError(t, err)
	out, err := command(t, folder, "git", "apply", "-C1", patch)
	require.NoError(t, err, "the patch does not apply any more, see doc.go:\n%s", out)
	text, err := json.Marshal(o)
	require.NoError(t, err)
	path := filepath.Join(folder, "overlay.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

func command(t *testing.T, folder, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// goTest runs tests of the patched module.
func goTest(t *testing.T, overlay string, args ...string) (string, error) {
	t.Helper()
	flags := []string{"test", "-count=1", "-overlay=" + overlay}
	if raceEnabled {
		flags = append(flags, "-race") // what it needs is compiled so already
	}
	return command(t, "../..", "go", append(flags, args...)...)
}

// A third limit, of a user and an hour, is claimed under, refused, replayed, released, evicted, rebuilt, reconciled and repaired.
func TestAThirdLimit(t *testing.T) {
	t.Parallel()
	out, err := goTest(t, build(t), "-v", "./internal/hourlimit")
	require.NoError(t, err, out)
	for _, name := range []string{
		"TestClaimsUnderTheLimit", "TestALimitThatIsChanged", "TestReleasesGiveTheLimitBack", "TestTheLimitOutlivesEvictionLossAndRebuild",
		"TestReconcileAndRepairKnowTheLimit", "TestACampaignOfBeforeTheLimitIsRebuilt",
	} {
		require.Contains(t, out, "--- PASS: "+name)
	}
}

// finders run the tests that find a forgotten file if the compiler does not. Tests that list every limit or refusal are not among them.
var finders = []string{
	"-run=Limit|EachNumber|Definition|Columns|CutShort|Digest|ClaimCodes", "./lua", "./models", "./migrations", "./syncer/campaigns", "./api/...",
	"./internal/hourlimit",
}

// Whichever file of the patch is left out, the compiler or a test tells.
func TestAForgottenFileIsFound(t *testing.T) {
	t.Parallel()
	if !testenv.Soak() {
		t.Skip("takes minutes: DIBS_SOAK=1")
	}
	out, err := goTest(t, build(t), finders...)
	require.NoError(t, err, "with all files they pass: %s", out)
	for _, file := range patched(t) {
		out, err := goTest(t, build(t, file), finders...)
		require.Error(t, err, "nothing tells that %s was forgotten:\n%s", file, out)
		t.Logf("without %s: %s", file, firstFailure(out))
	}
}

func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "--- FAIL") || strings.Contains(line, ".go:") {
			return strings.TrimSpace(line)
		}
	}
	return out
}
