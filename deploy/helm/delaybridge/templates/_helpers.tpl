{{- define "delaybridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "delaybridge.fullname" -}}
{{- $name := include "delaybridge.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "delaybridge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "delaybridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The pods that run the bridge, and not the one that tests it. */}}
{{- define "delaybridge.bridgeLabels" -}}
{{ include "delaybridge.selectorLabels" . }}
app.kubernetes.io/component: bridge
{{- end -}}

{{- define "delaybridge.labels" -}}
{{ include "delaybridge.selectorLabels" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "delaybridge.serviceAccountName" -}}
{{- default (ternary (include "delaybridge.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "delaybridge.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* The configuration as the bridge gets it. The addresses are the chart's, since ports and probes name them. */}}
{{- define "delaybridge.config" -}}
{{- $admin := .Values.config.admin | default dict -}}
{{- if or .Values.config.instance $admin.listen $admin.probes -}}
{{- fail "config.instance, config.admin.listen and config.admin.probes are set by the chart" -}}
{{- end -}}
{{- if not (or .Values.config.queues .Values.config.queue_files) -}}
{{- fail "give config.queues, or config.queue_files" -}}
{{- end -}}
{{- if .Values.service.enabled -}}
{{- $auth := $admin.auth | default dict -}}
{{- $onlyClients := and (dig "tls" "client_ca_file" "" $admin) (ne (dig "tls" "client_certs" "required" $admin) "optional") -}}
{{- if not (or $auth.tokens_file $auth.issuers $auth.certificates $onlyClients $admin.read_only) -}}
{{- fail "service.enabled shows the API to others: give config.admin.auth (tokens_file, issuers or certificates), config.admin.tls.client_ca_file or config.admin.read_only" -}}
{{- end -}}
{{- end -}}
{{- $lameDuck := ternary (dict "lame_duck" (include "delaybridge.lameDuck" .)) dict .Values.service.enabled -}}
{{- $addresses := dict "listen" (ternary ":8080" "127.0.0.1:8080" .Values.service.enabled) "probes" ":8081" -}}
{{- mergeOverwrite (deepCopy .Values.config) (dict "admin" (merge $addresses $lameDuck)) | toYaml -}}
{{- end -}}

{{/* Endpoints of a Service follow /readyz within some seconds. */}}
{{- define "delaybridge.lameDuck" -}}
{{- dig "lame_duck" (ternary "10s" "0s" .Values.service.enabled) (.Values.config.admin | default dict) -}}
{{- end -}}

{{/* config.drain_timeout and config.admin.lame_duck in seconds, rounded up. */}}
{{- define "delaybridge.drainSeconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $milliseconds := 0 -}}
{{- range $key, $text := dict "drain_timeout" (.Values.config.drain_timeout | default "20s") "admin.lame_duck" (include "delaybridge.lameDuck" .) -}}
{{- if not (regexMatch "^([0-9]+(ms|s|m|h))+$" $text) -}}
{{- fail (printf "config.%s %q: terminationGracePeriodSeconds follows from it, so give whole numbers of h, m, s or ms" $key $text) -}}
{{- end -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" $text -1 -}}
{{- $milliseconds = add $milliseconds (mul (regexFind "[0-9]+" .) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- end -}}
{{- div (add $milliseconds 999) 1000 -}}
{{- end -}}

{{/* The bridge closes what is left within ten seconds after the drain. */}}
{{- define "delaybridge.graceSeconds" -}}
{{- $least := add (include "delaybridge.drainSeconds" .) 10 -}}
{{- $seconds := .Values.terminationGracePeriodSeconds | default (add $least 5) | int64 -}}
{{- if lt $seconds $least -}}
{{- fail (printf "terminationGracePeriodSeconds %d would cut off a drain: with these config.drain_timeout and config.admin.lame_duck give %d or more" $seconds $least) -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{/* Nine tenths of the memory limit, in bytes; empty without a limit. */}}
{{- define "delaybridge.goMemoryLimit" -}}
{{- with dig "limits" "memory" "" .Values.resources -}}
{{- $units := dict "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $unit := regexFind "[A-Za-z]+$" . -}}
{{- div (mul (trimSuffix $unit .) (get $units $unit) 9) 10 -}}
{{- end -}}
{{- end -}}

{{/* What the pods of the bridge, of its test and of the migration have in common. Of root, account and configMap. */}}
{{- define "delaybridge.podOf" -}}
{{- $account := .account -}}
{{- $configMap := .configMap -}}
{{- with .root -}}
serviceAccountName: {{ $account }}
automountServiceAccountToken: false
# A Service's variables could be taken for keys of the configuration.
enableServiceLinks: false
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: config
    configMap: {name: {{ $configMap }}}
  {{- range $at, $name := .Values.secrets }}
  - name: secret-{{ $at }}
    secret: {secretName: {{ $name }}, defaultMode: 0440}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "delaybridge.pod" -}}
{{ include "delaybridge.podOf" (dict "root" . "account" (include "delaybridge.serviceAccountName" .) "configMap" (include "delaybridge.fullname" .)) }}
{{- end -}}

{{/* Of root, and env: variables of this container alone. */}}
{{- define "delaybridge.containerOf" -}}
{{- $env := .env -}}
{{- with .root -}}
image: {{ include "delaybridge.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: DELAYBRIDGE__INSTANCE
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- with include "delaybridge.goMemoryLimit" . }}
  - name: GOMEMLIMIT
    value: {{ quote . }}
  {{- end }}
  {{- with concat .Values.extraEnv $env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: config, mountPath: /etc/delaybridge, readOnly: true}
  {{- range $at, $name := .Values.secrets }}
  - {name: secret-{{ $at }}, mountPath: /run/secrets/{{ $name }}, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "delaybridge.container" -}}
{{ include "delaybridge.containerOf" (dict "root" . "env" list) }}
{{- end -}}
