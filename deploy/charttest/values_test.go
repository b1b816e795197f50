package charttest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"
)

func TestChart_LintHasNothingToSay(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, file string, _ map[string]any) {
		t.Helper()
		said := lint.RunAll("../chart", read(t, file), release.Namespace)
		for _, message := range said.Messages {
			require.Less(t, message.Severity, support.WarningSev, "%s: %s", message.Path, message.Err)
		}
	})
}

// By values.schema.json, as `helm install` does. Each refusal
// names the value.
func TestChart_RefusesValuesThatItDoesNotHave(t *testing.T) {
	t.Parallel()
	chart, err := loader.LoadDir("../chart")
	require.NoError(t, err)
	refusal := func(set string) error {
		values, err := strvals.Parse(set)
		require.NoError(t, err, set)
		_, err = util.ToRenderValues(chart, values, release, nil)
		return err
	}
	for _, good := range []string{"", "api.replicas=3", "settings.DIBS_PARTITIONS=24,settings.DIBS_LOG_LEVEL=debug", "settings.DIBS_SHUTDOWN_TIMEOUT=2m",
		"syncer.resources.limits.memory=2Gi", "podMonitor.enabled=true,podMonitor.tokenSecret=viewer"} {
		require.NoError(t, refusal(good), good)
	}
	for bad, names := range map[string]string{
		"api.autoscalling.enabled=true":                       "autoscalling",
		"replicas=3":                                          "replicas",
		"api.replicas=many":                                   "replicas",
		"api.service.type=Public":                             "type",
		"settings.DIBS_PARTITIONS=0":                          "DIBS_PARTITIONS",
		"settings.DIBS_DURABILITY=sometimes":                  "DIBS_DURABILITY",
		"settings.DIBS_SHUTDOWN_TIMEOUT=1h":                   "DIBS_SHUTDOWN_TIMEOUT",
		"settings.DIBS_MYSQL_DSN=root@/dibs":                  "DIBS_MYSQL_DSN",
		"settings.DIBS_ADMIN_TOKEN=0123456789abcdef":          "DIBS_ADMIN_TOKEN",
		"settings.GOGC=100":                                   "GOGC",
		"jwt.jwksURL=http://id.example.com":                   "jwksURL",
		"consumer.resources.limits.memory=512M":               "memory",
		"podMonitor.enabled=true":                             "tokenSecret",
		"image.digest=latest":                                 "digest",
		"secrets.stores=":                                     "stores",
		"finance.database=own":                                "database",
		"consumer.keda.enabled=true,consumer.keda.lag=a-lot":  "lag",
		"networkPolicy.metricFrom[0].ipBlock.cidr=10.0.0.0/8": "metricFrom",
		"migrate.dsn=mysql-dsn":                               "dsn",
		"extraEnv[0].value=x":                                 "name",
		"extraVolumes[0].configMap.name=x":                    "name",
		"podAnnotations.a.b=c":                                "podAnnotations",
		"syncer.disruption.maxUnavailable=true":               "maxUnavailable",
		"tls.secret=Not_A_Name":                               "secret",
		"imagePullSecrets[0]=registry":                        "imagePullSecrets",
		"api.autoscaling.cpuPercent=600":                      "cpuPercent",
	} {
		require.ErrorContains(t, refusal(bad), names, bad)
	}
}
