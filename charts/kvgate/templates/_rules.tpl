{{/* What the operator may do in a namespace that it serves. No secrets, no exec, no deletion of anybody's workload. */}}
{{- define "kvgate.rules" -}}
# Pools are read; only their status and, in Enforce, one finalizer are written.
- apiGroups: [kvgate.dev]
  resources: [inferencepools]
  verbs: [get, list, watch, patch]
- apiGroups: [kvgate.dev]
  resources: [inferencepools/status]
  verbs: [update]
- apiGroups: [kvgate.dev]
  resources: [gateapprovals]
  verbs: [get, list, watch]
- apiGroups: [kvgate.dev]
  resources: [fabricreports, benchmarkreports]
  verbs: [get, list, create, patch, delete]
# The gated field of the target, by server-side apply. Never created: that takes the verb create.
- apiGroups: [nvidia.com]
  resources: [dynamographdeployments]
  verbs: [get, list, watch, patch]
- apiGroups: [nvidia.com]
  resources: [dynamoworkermetadatas]
  verbs: [get, list, watch]
# A sweep: Jobs, the schedule that their pods read, the pods' annotation that introduces them, and their logs.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, patch]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
# Models' configurations are read by name; schedules and recommendations are written.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, update, delete]
# Why a pod is not scheduled is read; what became of a pool is told.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end }}
