package charttest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
)

// `helm install` and `helm upgrade` without a cluster: the
// objects go into a file. The guide's test runs it with the
// guide's arguments; by itself it uses those below.
func TestHelmCommand(t *testing.T) {
	t.Parallel()
	args := strings.Fields("install shop deploy/chart --timeout 15m --set image.repository=registry.example.com/dibs")
	to := filepath.Join(t.TempDir(), "objects.yaml")
	if given := os.Getenv("HELM_ARGS"); given != "" {
		args = strings.Fields(given)
		to = os.Getenv("HELM_OBJECTS")
	}
	flags := pflag.NewFlagSet("helm", pflag.ContinueOnError)
	set := flags.StringArray("set", nil, "")
	files := flags.StringArrayP("values", "f", nil, "")
	flags.Duration("timeout", 0, "")
	require.NoError(t, flags.Parse(args))
	require.Len(t, flags.Args(), 3, "command, release and chart")
	require.Contains(t, []string{"install", "upgrade"}, flags.Arg(0))
	require.Equal(t, "deploy/chart", flags.Arg(2))

	chart, err := loader.LoadDir("../chart")
	require.NoError(t, err)
	require.True(t, chartutil.IsCompatibleRange(chart.Metadata.KubeVersion, "v1.33.0"))
	values := map[string]any{}
	for _, file := range *files {
		values = read(t, filepath.Base(file))
	}
	for _, one := range *set {
		require.NoError(t, strvals.ParseInto(one, values))
	}
	options := common.ReleaseOptions{Name: flags.Arg(1), Namespace: "shop", IsInstall: flags.Arg(0) == "install", IsUpgrade: flags.Arg(0) == "upgrade"}
	all, err := util.ToRenderValues(chart, values, options, nil)
	require.NoError(t, err)
	rendered, err := engine.Engine{Strict: true}.Render(chart, all)
	require.NoError(t, err)
	var objects []string
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if strings.HasSuffix(name, ".yaml") {
			objects = append(objects, rendered[name])
		}
	}
	require.NoError(t, os.WriteFile(to, []byte(strings.Join(objects, "\n---\n")), 0o600))
}
