{{- define "kvgate.labels" -}}
app.kubernetes.io/name: kvgate
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "kvgate.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "kvgate.subjects" -}}
- kind: ServiceAccount
  name: kvgate-operator
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* Of the one object pair that is the cluster's also where namespaces are named: each release then has its own. */}}
{{- define "kvgate.clusterName" -}}
{{- if .Values.watchNamespaces -}}
kvgate-operator-nodes-{{ .Release.Namespace }}
{{- else -}}
kvgate-operator-cluster
{{- end -}}
{{- end }}
