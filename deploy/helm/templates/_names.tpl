{{/* The name of a build in Kubernetes: lower case, without characters that a name may not have. */}}
{{- define "worker.name" -}}
{{- $id := regexReplaceAll "[^a-z0-9.-]" (lower (toString .build.id)) "-" -}}
{{- printf "%s-%s" .release $id | trunc 52 | trimSuffix "-" | trimSuffix "." -}}
{{- end -}}

{{/* The labels by which the pods of a build are selected. */}}
{{- define "worker.labels" -}}
app.kubernetes.io/name: perdure-worker
app.kubernetes.io/instance: {{ .release }}
perdure/build: {{ include "worker.name" . }}
{{- end -}}
