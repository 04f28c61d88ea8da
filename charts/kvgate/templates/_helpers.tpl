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
