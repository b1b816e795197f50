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

{{- /* The settings of a role: those of all, the stores by reference, and what the role needs. */ -}}
{{- define "dibs.env" -}}
{{- range $name, $value := .root.Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
- name: DIBS_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .root.Values.secrets.stores }}, key: redis-url}}
- name: DIBS_MYSQL_DSN
  valueFrom: {secretKeyRef: {name: {{ .root.Values.secrets.stores }}, key: {{ ternary .root.Values.migrate.dsnKey "mysql-dsn" (eq .role "migrate") }}}}
{{- if and (eq .role "finance") .root.Values.finance.ownDatabase }}
- name: DIBS_FINANCE_DSN
  valueFrom: {secretKeyRef: {name: {{ .root.Values.secrets.stores }}, key: finance-dsn}}
{{- end }}
{{- if ne .role "migrate" }}
- name: DIBS_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: DIBS_TOKENS_FILE, value: /etc/dibs/tokens/tokens}
{{- if eq .role "api" }}
- {name: DIBS_HTTP_ADDR, value: "0.0.0.0:8080"}
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
  {{- with .root.Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 30 # longer than DIBS_SHUTDOWN_TIMEOUT and the pause of preStop before it
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq .role "migrate" }}
  restartPolicy: OnFailure
  {{- else }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "dibs.labels" . | nindent 10 }}
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
      image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
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
        - {name: http, containerPort: {{ ternary 8080 9091 (eq .role "api") }}}
      {{- $scheme := ternary "HTTPS" "HTTP" (and (eq .role "api") (ne .root.Values.tls.secret "")) }}
      startupProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
        periodSeconds: 1
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
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
      volumeMounts:
        - {name: tokens, mountPath: /etc/dibs/tokens, readOnly: true}
        {{- if and (eq .role "api") .root.Values.tls.secret }}
        - {name: tls, mountPath: /etc/dibs/tls, readOnly: true}
        {{- end }}
  volumes:
    - name: tokens
      secret: {secretName: {{ .root.Values.secrets.tokens }}, defaultMode: 0440}
    {{- if and (eq .role "api") .root.Values.tls.secret }}
    - name: tls
      secret: {secretName: {{ .root.Values.tls.secret }}, defaultMode: 0440}
    {{- end }}
      {{- end }}
{{- end }}
