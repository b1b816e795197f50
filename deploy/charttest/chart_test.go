// Package charttest renders the Helm chart with Helm's engine
// and checks the result against Kubernetes' types. It is a
// separate module, so that Dibs does not depend on Kubernetes.
package charttest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// scaledObject is the part of KEDA's type used by the chart, see
// https://keda.sh/docs/2.17/reference/scaledobject-spec/.
type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Name       string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount int `json:"minReplicaCount"`
		MaxReplicaCount int `json:"maxReplicaCount"`
		Triggers        []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
			AuthRef  struct {
				Name string `json:"name"`
			} `json:"authenticationRef"`
		} `json:"triggers"`
	} `json:"spec"`
}

type triggerAuthentication struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SecretTargetRef []struct {
			Parameter string `json:"parameter"`
			Name      string `json:"name"`
			Key       string `json:"key"`
		} `json:"secretTargetRef"`
	} `json:"spec"`
}

// podMonitor is the part of the Prometheus operator's type used by the chart,
// see https://prometheus-operator.dev/docs/api-reference/api/.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port          string            `json:"port"`
			Path          string            `json:"path"`
			Interval      string            `json:"interval"`
			Scheme        string            `json:"scheme"`
			TLSConfig     map[string]string `json:"tlsConfig"`
			Authorization struct {
				Type        string                   `json:"type"`
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// kinds are the types that the chart may use.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                     func() any { return new(appsv1.Deployment) },
	"apps/v1 StatefulSet":                    func() any { return new(appsv1.StatefulSet) },
	"batch/v1 Job":                           func() any { return new(batchv1.Job) },
	"v1 Service":                             func() any { return new(corev1.Service) },
	"policy/v1 PodDisruptionBudget":          func() any { return new(policyv1.PodDisruptionBudget) },
	"autoscaling/v2 HorizontalPodAutoscaler": func() any { return new(autoscalingv2.HorizontalPodAutoscaler) },
	"networking.k8s.io/v1 NetworkPolicy":     func() any { return new(networkingv1.NetworkPolicy) },
	"keda.sh/v1alpha1 ScaledObject":          func() any { return new(scaledObject) },
	"keda.sh/v1alpha1 TriggerAuthentication": func() any { return new(triggerAuthentication) },
	"monitoring.coreos.com/v1 PodMonitor":    func() any { return new(podMonitor) },
}

var release = common.ReleaseOptions{Name: "shop", Namespace: "shop", IsInstall: true}

// read reads a values file; "" is none.
func read(t *testing.T, valuesFile string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if valuesFile != "" {
		text, err := os.ReadFile("../chart/" + valuesFile)
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict(text, &values))
	}
	return values
}

func render(t *testing.T, valuesFile string) map[string]any {
	t.Helper()
	return renderWith(t, read(t, valuesFile))
}

// renderWith renders the chart and decodes each object strictly:
// a field unknown to Kubernetes is an error.
func renderWith(t *testing.T, values map[string]any) map[string]any {
	t.Helper()
	chart, err := loader.LoadDir("../chart")
	require.NoError(t, err)
	require.NoError(t, chart.Validate())
	all, err := util.ToRenderValues(chart, values, release, nil)
	require.NoError(t, err)
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	require.NoError(t, err)
	objects := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		for _, text := range strings.Split(files[name], "\n---\n") {
			if strings.TrimSpace(text) == "" {
				continue
			}
			var about struct {
				metav1.TypeMeta `json:",inline"`
				Metadata        struct {
					Name string `json:"name"`
				} `json:"metadata"`
			}
			require.NoError(t, yaml.Unmarshal([]byte(text), &about), "%s", text)
			newObject := kinds[about.APIVersion+" "+about.Kind]
			require.NotNil(t, newObject, "%s %s in %s", about.APIVersion, about.Kind, name)
			object := newObject()
			require.NoError(t, yaml.UnmarshalStrict([]byte(text), object), "%s", text)
			key := about.Kind + " " + strings.TrimPrefix(about.Metadata.Name, "shop-")
			require.NotContains(t, objects, key, "twice")
			objects[key] = object
		}
	}
	return objects
}

func pods(objects map[string]any) map[string]corev1.PodTemplateSpec {
	found := map[string]corev1.PodTemplateSpec{}
	for key, object := range objects {
		_, role, _ := strings.Cut(key, " ")
		switch o := object.(type) {
		case *appsv1.Deployment:
			found[role] = o.Spec.Template
		case *appsv1.StatefulSet:
			found[role] = o.Spec.Template
		case *batchv1.Job:
			found[role] = o.Spec.Template
		}
	}
	return found
}

func each(t *testing.T, test func(t *testing.T, file string, objects map[string]any)) {
	t.Helper()
	examples, err := filepath.Glob("../chart/values-*.yaml")
	require.NoError(t, err)
	require.Len(t, examples, 3)
	files := []string{""}
	for _, path := range examples {
		files = append(files, filepath.Base(path))
	}
	for _, file := range files {
		t.Run("values"+file, func(t *testing.T) {
			t.Parallel()
			test(t, file, render(t, file))
		})
	}
}

func TestChart_EveryPodIsHardenedAndNamesItsSecrets(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ string, objects map[string]any) {
		t.Helper()
		job, ok := objects["Job migrate"].(*batchv1.Job)
		require.True(t, ok)
		require.Equal(t, "pre-install,pre-upgrade", job.Annotations["helm.sh/hook"])
		for role, pod := range pods(objects) {
			require.True(t, *pod.Spec.SecurityContext.RunAsNonRoot, role)
			require.False(t, *pod.Spec.AutomountServiceAccountToken, role)
			require.Len(t, pod.Spec.Containers, 1)
			c := pod.Spec.Containers[0]
			require.Equal(t, []string{role}, c.Args)
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, role)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, role)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, role)
			require.NotEmpty(t, c.Resources.Requests.Cpu().String(), role)
			require.False(t, c.Resources.Limits.Memory().IsZero(), role)
			requireMounts(t, role, &pod.Spec)
			requireEnv(t, role, c.Env)
			if role == "migrate" {
				continue
			}
			require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path, role)
			require.Equal(t, "/healthz", c.StartupProbe.HTTPGet.Path, role)
			require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path, role)
			requireProbesWhereItListens(t, role, &c)
			requireTimeToStop(t, role, &pod.Spec)
		}
	})
}

// requireMounts requires a mount for each volume and vice versa.
func requireMounts(t *testing.T, role string, pod *corev1.PodSpec) {
	t.Helper()
	var volumes, mounts []string
	for i := range pod.Volumes {
		volumes = append(volumes, pod.Volumes[i].Name)
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		mounts = append(mounts, m.Name)
	}
	require.Equal(t, volumes, mounts, role)
}

func requireProbesWhereItListens(t *testing.T, role string, c *corev1.Container) {
	t.Helper()
	listens := map[string]string{}
	for _, v := range c.Env {
		if strings.HasSuffix(v.Name, "_ADDR") {
			listens[v.Value] = v.Name
		}
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		at := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == probe.HTTPGet.Port.String() })
		require.GreaterOrEqual(t, at, 0, "%s: no port %s", role, probe.HTTPGet.Port.String())
		setting := listens[fmt.Sprintf("0.0.0.0:%d", c.Ports[at].ContainerPort)]
		require.Contains(t, []string{"DIBS_PROBE_ADDR", "DIBS_METRICS_ADDR"}, setting, role)
		require.Empty(t, probe.HTTPGet.Scheme, "%s: %s has no certificate", role, setting)
	}
}

// requireTimeToStop requires that a pod is not killed before it
// has finished its work.
func requireTimeToStop(t *testing.T, role string, pod *corev1.PodSpec) {
	t.Helper()
	c := &pod.Containers[0]
	i := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == "DIBS_SHUTDOWN_TIMEOUT" })
	stop, err := time.ParseDuration(c.Env[i].Value)
	require.NoError(t, err)
	if c.Lifecycle != nil {
		stop += time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	require.Greater(t, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second, stop, role)
	i = slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == "GOMEMLIMIT" })
	soft := resource.MustParse(strings.TrimSuffix(c.Env[i].Value, "B"))
	require.Less(t, soft.Value(), c.Resources.Limits.Memory().Value(), role)
	require.Greater(t, 5*soft.Value(), 4*c.Resources.Limits.Memory().Value(), role)
}

func settings(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../internal/config/settings.go")
	require.NoError(t, err)
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t\{key: "([a-z-]+)"`).FindAllStringSubmatch(string(text), -1) {
		known["DIBS_"+strings.ToUpper(strings.ReplaceAll(m[1], "-", "_"))] = true
	}
	require.Greater(t, len(known), 20)
	return known
}

// requireEnv requires that every variable is a setting of Dibs,
// given once, and that the chart contains no secret.
func requireEnv(t *testing.T, role string, env []corev1.EnvVar) {
	t.Helper()
	known := settings(t)
	seen := map[string]bool{}
	for _, v := range env {
		require.True(t, known[v.Name] || v.Name == "GOMEMLIMIT" || strings.HasPrefix(v.Name, "OTEL_"), "%s: no setting %s", role, v.Name)
		require.False(t, seen[v.Name], "%s: %s twice", role, v.Name)
		seen[v.Name] = true
		secret := strings.HasSuffix(v.Name, "_URL") && v.Name != "DIBS_JWKS_URL" || strings.HasSuffix(v.Name, "_DSN") || strings.HasSuffix(v.Name, "_TOKEN")
		if secret {
			require.NotNil(t, v.ValueFrom, "%s: %s", role, v.Name)
			require.NotNil(t, v.ValueFrom.SecretKeyRef, "%s: %s", role, v.Name)
		}
	}
	require.True(t, seen["DIBS_REDIS_URL"] && seen["DIBS_MYSQL_DSN"], role)
}

func TestChart_SelectorsFindTheirPods(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ string, objects map[string]any) {
		t.Helper()
		all := pods(objects)
		finds := func(what string, selector labels.Selector) {
			require.True(t, slices.ContainsFunc(slices.Collect(maps.Values(all)), func(pod corev1.PodTemplateSpec) bool {
				return selector.Matches(labels.Set(pod.Labels))
			}), what)
		}
		of := func(s *metav1.LabelSelector) labels.Selector {
			selector, err := metav1.LabelSelectorAsSelector(s)
			require.NoError(t, err)
			return selector
		}
		for key, object := range objects {
			switch o := object.(type) {
			case *appsv1.Deployment:
				require.True(t, of(o.Spec.Selector).Matches(labels.Set(o.Spec.Template.Labels)), key)
			case *appsv1.StatefulSet:
				require.True(t, of(o.Spec.Selector).Matches(labels.Set(o.Spec.Template.Labels)), key)
				require.Contains(t, objects, "Service "+strings.TrimPrefix(o.Spec.ServiceName, "shop-"))
			case *corev1.Service:
				finds(key, labels.SelectorFromSet(o.Spec.Selector))
			case *policyv1.PodDisruptionBudget:
				finds(key, of(o.Spec.Selector))
			case *networkingv1.NetworkPolicy:
				finds(key, of(&o.Spec.PodSelector))
			}
		}
	})
}

// OpenShift chooses ids, and a mesh adds a sidecar that would
// keep the Job from ending.
func TestChart_ClustersThatHaveRulesForPods(t *testing.T) {
	t.Parallel()
	for role, pod := range pods(renderWith(t, map[string]any{
		"podSecurityContext": map[string]any{"runAsUser": nil, "runAsGroup": nil, "fsGroup": nil},
		"podAnnotations":     map[string]any{"team": "shop", "inject": "true"},
		"migrate":            map[string]any{"podAnnotations": map[string]any{"inject": "false"}},
	})) {
		require.Equal(t, &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}, pod.Spec.SecurityContext, role)
		want := map[string]string{"team": "shop", "inject": "true"}
		if role == "migrate" {
			want["inject"] = "false"
		}
		require.Equal(t, want, pod.Annotations, role)
	}
	for role, pod := range pods(renderWith(t, map[string]any{"podSecurityContext": nil})) {
		require.Nil(t, pod.Spec.SecurityContext, role)
	}
}

// Values and --set have floats, as JSON has. Otherwise a large
// number is rendered like 1e+06, which Dibs refuses.
func TestChart_NumbersAreNotWrittenAsPowers(t *testing.T) {
	t.Parallel()
	settings := map[string]any{"DIBS_HTTP_CONNS": float64(1_000_000), "DIBS_USER_RATE": 0.5, "DIBS_FLUSH_SIZE": int64(2_000_000), "DIBS_CONSOLE": "off"}
	want := map[string]string{"DIBS_HTTP_CONNS": "1000000", "DIBS_USER_RATE": "0.5", "DIBS_FLUSH_SIZE": "2000000", "DIBS_CONSOLE": "off"}
	found := 0
	env := pods(renderWith(t, map[string]any{"settings": settings}))["api"].Spec.Containers[0].Env
	for _, e := range env {
		if text, is := want[e.Name]; is {
			require.Equal(t, text, e.Value, e.Name)
			found++
		}
	}
	require.Len(t, want, found)
}

func TestChart_EachFileOfValuesTurnsOnWhatItSays(t *testing.T) {
	t.Parallel()
	small := render(t, "values-small.yaml")
	require.Equal(t, []string{"Deployment api", "Deployment syncer", "Job migrate", "Service api", "Service consumer", "Service syncer",
		"StatefulSet consumer"}, slices.Sorted(maps.Keys(small)))

	cluster := render(t, "values-cluster.yaml")
	hpa, ok := cluster["HorizontalPodAutoscaler api"].(*autoscalingv2.HorizontalPodAutoscaler)
	require.True(t, ok)
	require.EqualValues(t, 20, hpa.Spec.MaxReplicas)
	api, ok := cluster["Deployment api"].(*appsv1.Deployment)
	require.True(t, ok)
	require.Nil(t, api.Spec.Replicas, "the autoscaler's")
	require.Contains(t, api.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "DIBS_PARTITIONS", Value: "12"})

	everything := render(t, "values-everything.yaml")
	for _, key := range []string{"NetworkPolicy api", "NetworkPolicy workers", "ScaledObject consumer", "TriggerAuthentication consumer",
		"StatefulSet finance", "PodDisruptionBudget syncer", "HorizontalPodAutoscaler api"} {
		require.Contains(t, everything, key)
	}
	c := pods(everything)["api"].Spec.Containers[0]
	require.Contains(t, fmt.Sprint(c.Env), "/etc/dibs/tls/tls.key")
	require.Contains(t, fmt.Sprint(pods(everything)["finance"].Spec.Containers[0].Env), "DIBS_FINANCE_DSN")
	require.Contains(t, fmt.Sprint(pods(everything)["webhooks"].Spec.Containers[0].Env), "/etc/dibs/webhooks/endpoints.json")
	scaled, ok := everything["ScaledObject consumer"].(*scaledObject)
	require.True(t, ok)
	require.Len(t, scaled.Spec.Triggers, 3, "one a stream")
	require.Equal(t, "dibs:{p2}:claims", scaled.Spec.Triggers[2].Metadata["stream"])
	require.Equal(t, "registry.example.com/dibs@sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", c.Image)
	for role, pod := range pods(everything) {
		require.Contains(t, fmt.Sprint(pod.Spec.Containers[0].Env), "OTEL_EXPORTER_OTLP_ENDPOINT", role)
	}
	require.GreaterOrEqual(t, scaled.Spec.MinReplicaCount, 1, "a stream without a reader has no lag to scale by")
}

func keyOf(t *testing.T, pod *corev1.PodTemplateSpec, setting string) string {
	t.Helper()
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == setting {
			return v.ValueFrom.SecretKeyRef.Key
		}
	}
	return ""
}

func TestChart_TheMigrationHasItsOwnUserAndSeesToEachDatabase(t *testing.T) {
	t.Parallel()
	plain := pods(render(t, ""))
	for role, pod := range plain {
		want := "mysql-dsn"
		if role == "migrate" {
			want = "mysql-dsn-migrate"
		}
		require.Equal(t, want, keyOf(t, &pod, "DIBS_MYSQL_DSN"), role)
		require.Empty(t, keyOf(t, &pod, "DIBS_FINANCE_DSN"), role)
	}
	own := pods(render(t, "values-everything.yaml"))
	for role, want := range map[string]string{"migrate": "finance-dsn-migrate", "finance": "finance-dsn", "api": ""} {
		pod := own[role]
		require.Equal(t, want, keyOf(t, &pod, "DIBS_FINANCE_DSN"), role)
	}
}

// By the monitor's ports, the token and the policies, with and
// without a certificate.
func TestChart_PrometheusReachesEveryPod(t *testing.T) {
	t.Parallel()
	everything := render(t, "values-everything.yaml")
	monitor, ok := everything["PodMonitor pods"].(*podMonitor)
	require.True(t, ok)
	require.Equal(t, "prometheus", monitor.Labels["release"])
	selects, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	require.NoError(t, err)
	for role, pod := range pods(everything) {
		if role == "migrate" {
			continue
		}
		require.True(t, selects.Matches(labels.Set(pod.Labels)), role)
		found := 0
		for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
			require.Equal(t, "/metrics", endpoint.Path)
			require.Equal(t, "dibs-viewer", endpoint.Authorization.Credentials.Name)
			if slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == endpoint.Port }) {
				found++
				require.Equal(t, role == "api", endpoint.Scheme == "https", role)
			}
		}
		require.Equal(t, 1, found, "%s is scraped once", role)
		require.Contains(t, everything, "Service "+role)
	}
	for _, name := range []string{"api", "workers"} {
		policy, ok := everything["NetworkPolicy "+name].(*networkingv1.NetworkPolicy)
		require.True(t, ok)
		require.True(t, slices.ContainsFunc(policy.Spec.Ingress[0].From, func(p networkingv1.NetworkPolicyPeer) bool {
			return p.NamespaceSelector != nil && p.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] == "monitoring"
		}), name)
	}
}
