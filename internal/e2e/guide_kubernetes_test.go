package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"dibs/internal/testkit/machine"
)

// kubectl accepts the guide's commands and stores secrets as files.
const kubectl = `#!/usr/bin/env bash
set -eu
[[ "$1 $2 $3" == "create secret generic" ]]
mkdir -p "$HOME/secrets"
mkdir "$HOME/secrets/$4"
for arg in "${@:5}"; do
  pair=${arg#--from-*=}
  case $arg in
    --from-literal=*) printf %s "${pair#*=}" >"$HOME/secrets/$4/${pair%%=*}" ;;
    --from-file=*) cp "${pair#*=}" "$HOME/secrets/$4/${pair%%=*}" ;;
    *) echo "what is $arg?" >&2; exit 1 ;;
  esac
done
`

// helm renders the chart with Helm's packages, which are in a separate
// module.
const helm = `#!/usr/bin/env bash
set -eu
export HELM_ARGS="$*" HELM_OBJECTS="$HOME/objects.yaml"
cd "$CHARTTEST"
exec "$HOME/charttest" -test.run '^TestHelmCommand$'
`

// object is the part of a chart's object used here.
type object struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name        string            `yaml:"name"`
		Annotations map[string]string `yaml:"annotations"`
	} `yaml:"metadata"`
	Spec struct {
		Replicas int `yaml:"replicas"`
		Template struct {
			Spec podSpec `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type podSpec struct {
	Containers []struct {
		Args  []string `yaml:"args"`
		Ports []struct {
			Name          string `yaml:"name"`
			ContainerPort int    `yaml:"containerPort"`
		} `yaml:"ports"`
		Env []struct {
			Name      string `yaml:"name"`
			Value     string `yaml:"value"`
			ValueFrom struct {
				Secret struct {
					Name string `yaml:"name"`
					Key  string `yaml:"key"`
				} `yaml:"secretKeyRef"`
				Field struct {
					Path string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
			} `yaml:"valueFrom"`
		} `yaml:"env"`
		Mounts []struct {
			Name string `yaml:"name"`
			Path string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
		Readiness struct {
			HTTPGet struct {
				Path string `yaml:"path"`
				Port string `yaml:"port"`
			} `yaml:"httpGet"`
		} `yaml:"readinessProbe"`
	} `yaml:"containers"`
	Volumes []struct {
		Name   string `yaml:"name"`
		Secret struct {
			Name string `yaml:"secretName"`
		} `yaml:"secret"`
	} `yaml:"volumes"`
}

// cluster runs a release's processes as Kubernetes would.
type cluster struct {
	t       *testing.T
	folder  string // with the secrets and the objects
	objects []object
}

type pod struct {
	*process

	readyURL string
}

func (c *cluster) load() {
	c.t.Helper()
	file, err := os.Open(filepath.Join(c.folder, "objects.yaml"))
	require.NoError(c.t, err)
	defer func() { _ = file.Close() }()
	c.objects = nil
	for objects := yaml.NewDecoder(file); ; {
		var o object
		err := objects.Decode(&o)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(c.t, err)
		c.objects = append(c.objects, o)
	}
}

// settings are a pod's environment, with the secrets' files and local ports.
func (c *cluster) settings(name string, spec *podSpec, moved map[string]string) map[string]string {
	c.t.Helper()
	container := &spec.Containers[0]
	settings := map[string]string{}
	for _, v := range container.Env {
		value := v.Value
		if secret := v.ValueFrom.Secret; secret.Name != "" {
			text, err := os.ReadFile(filepath.Join(c.folder, "secrets", secret.Name, secret.Key))
			require.NoError(c.t, err, "%s of %s", v.Name, name)
			value = string(text)
		}
		if v.ValueFrom.Field.Path == "metadata.name" {
			value = name
		}
		for i, mount := range container.Mounts {
			require.Equal(c.t, mount.Name, spec.Volumes[i].Name)
			if under, is := strings.CutPrefix(value, mount.Path); is {
				value = filepath.Join(c.folder, "secrets", spec.Volumes[i].Secret.Name, under)
			}
		}
		if strings.HasSuffix(v.Name, "_ADDR") {
			moved[value] = machine.Addr(c.t)
			value = moved[value]
		}
		settings[v.Name] = value
	}
	return settings
}

// pod makes an object's pod without starting it.
func (c *cluster) pod(o *object, n int) *pod {
	c.t.Helper()
	spec := &o.Spec.Template.Spec
	container := &spec.Containers[0]
	moved := map[string]string{}
	settings := c.settings(fmt.Sprintf("%s-%d", o.Metadata.Name, n), spec, moved)
	p := &pod{process: makeProcess(c.t, container.Args[0], settings)}
	for _, port := range container.Ports {
		addr := moved[fmt.Sprintf("0.0.0.0:%d", port.ContainerPort)]
		require.NotEmpty(c.t, addr, "%s does not listen on %d", o.Metadata.Name, port.ContainerPort)
		if port.Name == "http" || port.Name == "metrics" {
			p.url = "http://" + addr
		}
		if port.Name == container.Readiness.HTTPGet.Port {
			p.readyURL = "http://" + addr + container.Readiness.HTTPGet.Path
		}
	}
	maps.Copy(p.settings, settings) // makeProcess chose an address of its own
	return p
}

func (p *pod) run() {
	p.t.Helper()
	p.start()
	eventually(p.t, upTimeout, p.readyURL+" is not ready", func() bool {
		res, err := client.Get(p.readyURL)
		if err == nil {
			_ = res.Body.Close()
		}
		return err == nil && res.StatusCode == http.StatusOK
	})
}

// migrate runs the release's Job before anything else.
func (c *cluster) migrate() {
	c.t.Helper()
	for i := range c.objects {
		if o := &c.objects[i]; o.Kind == "Job" {
			require.Contains(c.t, o.Metadata.Annotations["helm.sh/hook"], "pre-install,pre-upgrade")
			got := runDibs(c.t, c.settings(o.Metadata.Name, &o.Spec.Template.Spec, nil), o.Spec.Template.Spec.Containers[0].Args...)
			require.Zero(c.t, got.code, got.stderr)
		}
	}
}

// pods makes all workloads' pods. A StatefulSet's pod keeps its
// name in a roll-over; others are numbered from first.
func (c *cluster) pods(first int) (all map[string][]*pod) {
	c.t.Helper()
	all = map[string][]*pod{}
	for i := range c.objects {
		o := &c.objects[i]
		from := first
		switch o.Kind {
		case "StatefulSet":
			from = 0
		case "Deployment":
		default:
			continue
		}
		for n := range o.Spec.Replicas {
			all[o.Kind] = append(all[o.Kind], c.pod(o, from+n))
		}
	}
	return all
}

func withToken(t *testing.T, to, file string) string {
	t.Helper()
	token, err := os.ReadFile(file)
	require.NoError(t, err)
	target, err := url.Parse(to)
	require.NoError(t, err)
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}})
	t.Cleanup(front.Close)
	return front.URL
}

// The guide's commands make secrets and objects. Processes run
// with the resulting environment, probes and order: installed,
// then rolled over under load. Only Helm's engine is real here.
func TestGuide_Kubernetes(t *testing.T) {
	t.Parallel()
	s := newServers(t, setup{noSchema: true, partitions: 12})
	charttest, err := filepath.Abs("../../deploy/charttest")
	require.NoError(t, err)
	g := openGuide(t, "kubernetes.md", &s, map[string]string{
		"REDIS_URL": s.redisURL, "MYSQL_DSN": s.dsn, "MYSQL_DSN_MIGRATE": s.dsn, "CHARTTEST": charttest,
	})
	compile := exec.CommandContext(t.Context(), "../../scripts/charttest", filepath.Join(g.folder, "charttest"))
	out, err := compile.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, script := range map[string]string{"kubectl": kubectl, "helm": helm} {
		require.NoError(t, os.WriteFile(filepath.Join(g.folder, name), []byte(script), 0o700))
	}
	g.run("schema")
	g.run("tokens")
	g.run("secrets")
	g.run("install")
	c := &cluster{t: t, folder: g.folder}
	c.load()
	c.migrate()
	before := c.pods(0)
	for _, kind := range []string{"StatefulSet", "Deployment"} {
		for _, p := range before[kind] {
			p.run()
		}
	}

	g.run("upgrade")
	c.load()
	after := c.pods(100)
	var apis []*process
	for _, p := range slices.Concat(before["Deployment"], after["Deployment"]) {
		if p.command == "api" {
			apis = append(apis, p.process)
		}
	}
	require.Len(t, apis, 4)
	_, front := balance(t, apis)
	rush := openCampaign(t, withToken(t, front, filepath.Join(g.folder, "admin.token")), campaign{Total: 100_000_000})
	stop := claimWithoutEnd(t, withToken(t, front, filepath.Join(g.folder, "storefront.token")), rush.ID, 4)
	c.migrate()
	for i := range after["Deployment"] { // one more, then one less
		after["Deployment"][i].run()
		before["Deployment"][i].stop()
	}
	for i := range after["StatefulSet"] { // names are unique
		before["StatefulSet"][i].stop()
		after["StatefulSet"][i].run()
	}
	claimed, failed := stop()
	require.Empty(t, failed)
	require.Greater(t, claimed, int64(100), "there was load")
	(&system{servers: s, t: t}).awaitSynced(rush.ID, int(claimed))
	for _, pods := range after {
		for _, p := range pods {
			require.Equal(t, http.StatusUnauthorized, statusOf(p.process, "/metrics"))
			scraped := call(t, http.MethodGet, withToken(t, p.url, filepath.Join(g.folder, "secrets/dibs-viewer/token"))+"/metrics", "", nil)
			require.Equal(t, http.StatusOK, scraped.status)
			require.Contains(t, scraped.body, `dibs_role_info{role="`+p.command+`"} 1`)
		}
	}
	t.Logf("%d claims over the roll-over", claimed)
}
