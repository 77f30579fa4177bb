#!/bin/sh
# Makes the Python stubs of the worker's protocol, with grpcio-tools where Python has them, else with protoc and its
# grpc_python_plugin. What the protocol imports needs stubs too.
set -eu
cd "$(dirname "$0")/../../proto"
out=../examples/worker-python/stubs
files="epigraph/executor/v1/worker.proto epigraph/executor/v1/event.proto epigraph/executor/v1/outcome.proto epigraph/executor/v1/run.proto
	epigraph/graph/v1/graph.proto epigraph/graph/v1/payload.proto
	buf/validate/validate.proto google/api/annotations.proto google/api/http.proto"
mkdir -p "$out"
if python3 -c 'import grpc_tools' 2>/dev/null; then
	set -- python3 -m grpc_tools.protoc
else
	set -- protoc "--plugin=protoc-gen-grpc_python=$(command -v grpc_python_plugin)"
fi
# $files is a list.
# shellcheck disable=SC2086
"$@" -I. -Ithird_party/googleapis -Ithird_party/protovalidate --python_out="$out" --grpc_python_out="$out" $files
