// Package charttest renders the Helm chart with Helm's own engine and holds what comes out to Kubernetes' own types. It is a module
// of its own, so that nothing of Kubernetes is among Dibs' dependencies.
package charttest

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// scaledObject is what the chart uses of KEDA's, after https://keda.sh/docs/2.17/reference/scaledobject-spec/.
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

// kinds are the types that the chart may make.
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
}

// render renders the chart with a file of values and decodes each object strictly: a field that Kubernetes does not know is an error.
func render(t *testing.T, valuesFile string) map[string]any {
	t.Helper()
	chart, err := loader.LoadDir("../chart")
	require.NoError(t, err)
	require.NoError(t, chart.Validate())
	values := map[string]any{}
	if valuesFile != "" {
		text, err := os.ReadFile("../chart/" + valuesFile)
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict(text, &values))
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "shop", Namespace: "shop", IsInstall: true}, nil)
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

// pods are the pod templates of the objects, by role.
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
	for _, file := range []string{"", "values-small.yaml", "values-cluster.yaml", "values-everything.yaml"} {
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
			requireEnv(t, role, c.Env)
			if role == "migrate" {
				continue
			}
			require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path, role)
			require.Equal(t, "/healthz", c.StartupProbe.HTTPGet.Path, role)
			require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path, role)
			require.Contains(t, listens(c.Env), fmt.Sprintf(":%d", c.Ports[0].ContainerPort), "%s: probes ask where it listens", role)
		}
	})
}

// listens is where the role of these variables listens.
func listens(env []corev1.EnvVar) string {
	for _, v := range env {
		if v.Name == "DIBS_HTTP_ADDR" || v.Name == "DIBS_METRICS_ADDR" {
			return v.Value
		}
	}
	return ""
}

// settings are the variables that Dibs has, by its table of them.
func settings(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../config/settings.go")
	require.NoError(t, err)
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t\{key: "([a-z-]+)"`).FindAllStringSubmatch(string(text), -1) {
		known["DIBS_"+strings.ToUpper(strings.ReplaceAll(m[1], "-", "_"))] = true
	}
	require.Greater(t, len(known), 20)
	return known
}

// requireEnv requires that every variable is a setting of Dibs, said once, and that no secret stands in the chart.
func requireEnv(t *testing.T, role string, env []corev1.EnvVar) {
	t.Helper()
	known := settings(t)
	seen := map[string]bool{}
	for _, v := range env {
		require.True(t, known[v.Name], "%s: no setting %s", role, v.Name)
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

func TestChart_MigratesBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ string, objects map[string]any) {
		t.Helper()
		job, ok := objects["Job migrate"].(*batchv1.Job)
		require.True(t, ok)
		require.Equal(t, "pre-install,pre-upgrade", job.Annotations["helm.sh/hook"])
	})
}

func TestChart_EachFileOfValuesTurnsOnWhatItSays(t *testing.T) {
	t.Parallel()
	small := render(t, "values-small.yaml")
	require.Equal(t, []string{"Deployment api", "Deployment syncer", "Job migrate", "Service api", "Service consumer", "StatefulSet consumer"},
		slices.Sorted(maps.Keys(small)))

	cluster := render(t, "values-cluster.yaml")
	hpa, ok := cluster["HorizontalPodAutoscaler api"].(*autoscalingv2.HorizontalPodAutoscaler)
	require.True(t, ok)
	require.EqualValues(t, 20, hpa.Spec.MaxReplicas)
	api, ok := cluster["Deployment api"].(*appsv1.Deployment)
	require.True(t, ok)
	require.Nil(t, api.Spec.Replicas, "the autoscaler's")
	require.Contains(t, api.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "DIBS_PARTITIONS", Value: "6"})

	everything := render(t, "values-everything.yaml")
	for _, key := range []string{"NetworkPolicy api", "NetworkPolicy workers", "ScaledObject consumer", "TriggerAuthentication consumer",
		"StatefulSet finance", "PodDisruptionBudget syncer", "HorizontalPodAutoscaler api"} {
		require.Contains(t, everything, key)
	}
	c := pods(everything)["api"].Spec.Containers[0]
	require.EqualValues(t, "HTTPS", c.ReadinessProbe.HTTPGet.Scheme)
	require.Contains(t, fmt.Sprint(c.Env), "/etc/dibs/tls/tls.key")
	require.Contains(t, fmt.Sprint(pods(everything)["finance"].Spec.Containers[0].Env), "DIBS_FINANCE_DSN")
	scaled, ok := everything["ScaledObject consumer"].(*scaledObject)
	require.True(t, ok)
	require.Len(t, scaled.Spec.Triggers, 3, "one a stream")
	require.Equal(t, "dibs:{p2}:claims", scaled.Spec.Triggers[2].Metadata["stream"])
	require.Equal(t, "redis-cluster-streams", scaled.Spec.Triggers[0].Type)
	require.Contains(t, scaled.Spec.Triggers[0].Metadata, "addresses")
	require.Contains(t, fmt.Sprint(pods(everything)["migrate"].Spec.Containers[0].Env), "migrate-dsn")
	require.GreaterOrEqual(t, scaled.Spec.MinReplicaCount, 1, "a stream without a reader has no lag to scale by")
}
