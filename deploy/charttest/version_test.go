package charttest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
)

// `helm lint` and rendering do not evaluate the constraint; `helm install` and `helm template` do.
func TestChart_IsInstalledOnEveryKubernetesSince130(t *testing.T) {
	t.Parallel()
	chart, err := loader.LoadDir("../chart")
	require.NoError(t, err)
	for version, works := range map[string]bool{
		"v1.29.9": false, "v1.30.0": true, "v1.31.2-eks-7f9249a": true, "v1.33.5": true, "v1.34.1+k3s1": true, "v1.40.0": true,
	} {
		require.Equal(t, works, util.IsCompatibleRange(chart.Metadata.KubeVersion, version), version)
	}
}
