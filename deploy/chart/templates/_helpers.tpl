{{- define "dibs.labels" -}}
app.kubernetes.io/name: dibs
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "dibs.meta" -}}
name: {{ .root.Release.Name }}-{{ .role }}
labels:
  {{- include "dibs.labels" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "dibs.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* Seconds that a pod has to stop: the pause of preStop, DIBS_SHUTDOWN_TIMEOUT, and ten more. */ -}}
{{- define "dibs.grace" -}}
{{- $timeout := .Values.settings.DIBS_SHUTDOWN_TIMEOUT | default "15s" }}
{{- $minutes := regexFind "[0-9]+m" $timeout | trimSuffix "m" | int }}
{{- $seconds := regexFind "[0-9]+s" $timeout | trimSuffix "s" | int }}
{{- add 5 (mul 60 $minutes) $seconds 10 }}
{{- end }}

{{- /* Go's soft limit of memory: nine tenths of the limit of the container, MiB. */ -}}
{{- define "dibs.memory" -}}
{{- $mebi := regexFind "^[0-9]+" . | int }}
{{- if hasSuffix "Gi" . }}{{ $mebi = mul $mebi 1024 }}{{ end }}
{{- div (mul $mebi 9) 10 }}MiB
{{- end }}

{{- /* The settings of a role: those of all, the stores by reference, and what the role needs. */ -}}
{{- define "dibs.env" -}}
{{- range $name, $value := .root.Values.settings }}
{{- /* A number of a million or more would be 1e+06. */}}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $value = int64 $value }}{{ end }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
- name: DIBS_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .root.Values.secrets.stores }}, key: redis-url}}
- name: DIBS_MYSQL_DSN
  valueFrom: {secretKeyRef: {name: {{ .root.Values.secrets.stores }}, key: {{ ternary .root.Values.migrate.dsnKey "mysql-dsn" (eq .role "migrate") }}}}
{{- if and (has .role (list "finance" "migrate")) .root.Values.finance.enabled .root.Values.finance.ownDatabase }}
- name: DIBS_FINANCE_DSN
  valueFrom: {secretKeyRef: {name: {{ .root.Values.secrets.stores }}, key: {{ ternary .root.Values.migrate.financeDSNKey "finance-dsn" (eq .role "migrate") }}}}
{{- end }}
{{- with dig "limits" "memory" "" (index .root.Values .role).resources }}
- {name: GOMEMLIMIT, value: {{ include "dibs.memory" . }}}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- if ne .role "migrate" }}
- name: DIBS_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: DIBS_TOKENS_FILE, value: /etc/dibs/tokens/tokens}
{{- if eq .role "webhooks" }}
- {name: DIBS_WEBHOOKS_FILE, value: /etc/dibs/webhooks/endpoints.json}
{{- end }}
{{- if eq .role "api" }}
- {name: DIBS_HTTP_ADDR, value: "0.0.0.0:8080"}
- {name: DIBS_PROBE_ADDR, value: "0.0.0.0:8081"} # a crowd at 8080 does not keep the probes out
{{- with .root.Values.jwt }}{{- if .jwksURL }}
- {name: DIBS_JWKS_URL, value: {{ .jwksURL | quote }}}
- {name: DIBS_JWT_ISSUER, value: {{ .issuer | quote }}}
- {name: DIBS_JWT_AUDIENCE, value: {{ .audience | quote }}}
{{- end }}{{- end }}
{{- else }}
- {name: DIBS_METRICS_ADDR, value: "0.0.0.0:9091"}
{{- end }}
{{- if and (eq .role "api") .root.Values.tls.secret }}
- {name: DIBS_TLS_CERT, value: /etc/dibs/tls/tls.crt}
- {name: DIBS_TLS_KEY, value: /etc/dibs/tls/tls.key}
{{- else }}
- {name: DIBS_INSECURE, value: "1"} # TLS is the proxy's
{{- end }}
{{- end }}
{{- end }}

{{- define "dibs.pod" -}}
metadata:
  labels:
    {{- include "dibs.labels" . | nindent 4 }}
    {{- with .root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- $own := ternary .root.Values.migrate.podAnnotations (dict) (eq .role "migrate") }}
  {{- with merge (dict) $own .root.Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ include "dibs.grace" .root }}
  {{- with .root.Values.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with .root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with index .root.Values "podSecurityContext" }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq .role "migrate" }}
  restartPolicy: OnFailure
  {{- else }}
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "dibs.labels" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .role }}
      image: {{ include "dibs.image" .root | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [{{ .role }}]
      env:
        {{- include "dibs.env" . | trim | nindent 8 }}
      resources:
        {{- toYaml (index .root.Values .role).resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      {{- if ne .role "migrate" }}
      ports:
        {{- if eq .role "api" }}
        - {name: http, containerPort: 8080}
        - {name: probe, containerPort: 8081}
        {{- else }}
        - {name: metrics, containerPort: 9091}
        {{- end }}
      {{- $probed := ternary "probe" "metrics" (eq .role "api") }}
      startupProbe:
        httpGet: {path: /healthz, port: {{ $probed }}}
        periodSeconds: 1
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /healthz, port: {{ $probed }}}
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: {{ $probed }}}
        {{- if eq .role "api" }}
        periodSeconds: 2 # balancers soon know
        timeoutSeconds: 2
        failureThreshold: 2
        {{- else }}
        periodSeconds: 5 # an upgrade to what can't work stops at the first pod
        timeoutSeconds: 3
        {{- end }}
      {{- if eq .role "api" }}
      lifecycle:
        preStop: {sleep: {seconds: 5}} # balancers stop sending before it stops listening
      {{- end }}
      {{- end }}
      {{- $tls := and (eq .role "api") .root.Values.tls.secret }}
      {{- if or (ne .role "migrate") .root.Values.extraVolumeMounts }}
      volumeMounts:
        {{- if ne .role "migrate" }}
        - {name: tokens, mountPath: /etc/dibs/tokens, readOnly: true}
        {{- end }}
        {{- if eq .role "webhooks" }}
        - {name: webhooks, mountPath: /etc/dibs/webhooks, readOnly: true}
        {{- end }}
        {{- if $tls }}
        - {name: tls, mountPath: /etc/dibs/tls, readOnly: true}
        {{- end }}
        {{- with .root.Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
  {{- if or (ne .role "migrate") .root.Values.extraVolumes }}
  volumes:
    {{- if ne .role "migrate" }}
    - name: tokens
      secret: {secretName: {{ .root.Values.secrets.tokens }}, defaultMode: 0440}
    {{- end }}
    {{- if eq .role "webhooks" }}
    - name: webhooks
      secret: {secretName: {{ .root.Values.secrets.webhooks }}, defaultMode: 0440}
    {{- end }}
    {{- if $tls }}
    - name: tls
      secret: {secretName: {{ .root.Values.tls.secret }}, defaultMode: 0440}
    {{- end }}
    {{- with .root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end }}
