#!/usr/bin/env bash
# Starts one node. KAFKA_NODE_ID is node.id, and so on: `_` is a dot, `__` an underscore, `___` a hyphen, as in
# apache/kafka. FORMAT_OPTIONS goes to the tool that formats the data, e.g. --add-scram 'SCRAM-SHA-512=[name=a,password=b]'.
set -euo pipefail

# A node by itself, unless told otherwise.
: "${KAFKA_NODE_ID:=1}" "${KAFKA_PROCESS_ROLES:=broker,controller}"
: "${KAFKA_CONTROLLER_QUORUM_VOTERS:=$KAFKA_NODE_ID@localhost:9093}"
: "${KAFKA_LISTENERS:=PLAINTEXT://:9092,CONTROLLER://:9093}"
: "${KAFKA_ADVERTISED_LISTENERS:=PLAINTEXT://$(hostname):9092}"
: "${KAFKA_CONTROLLER_LISTENER_NAMES:=CONTROLLER}"
: "${KAFKA_LISTENER_SECURITY_PROTOCOL_MAP:=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT}"
: "${KAFKA_LOG_DIRS:=/var/lib/kafka/data}"
# How many copies of internal topics there are: as many as nodes, three at most.
nodes=$(tr -cd , <<<"$KAFKA_CONTROLLER_QUORUM_VOTERS" | wc -c)
copies=$((nodes >= 2 ? 3 : nodes + 1)) in_sync=$((nodes >= 2 ? 2 : 1))
: "${KAFKA_DEFAULT_REPLICATION_FACTOR:=$copies}" "${KAFKA_MIN_INSYNC_REPLICAS:=$in_sync}"
: "${KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR:=$copies}"
: "${KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR:=$copies}" "${KAFKA_TRANSACTION_STATE_LOG_MIN_ISR:=$in_sync}"
: "${KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR:=$copies}"
: "${KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR:=$in_sync}"
# A broker opens every partition of these at its start.
: "${KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS:=8}" "${KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS:=8}"
: "${KAFKA_SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS:=8}"
: "${KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS:=0}"

properties=/tmp/server.properties
: >"$properties"
for name in "${!KAFKA_@}"; do
  case $name in KAFKA_HEAP_OPTS | KAFKA_OPTS) continue ;; esac
  key=${name#KAFKA_}
  key=${key,,}
  key=${key//___/-}
  # An underscore that stays hides behind a byte that no name has.
  key=${key//__/$'\1'}
  key=${key//_/.}
  key=${key//$'\1'/_}
  value=${!name}
  printf '%s=%s\n' "$key" "${value//$'\n'/\\n}" >>"$properties"
done

# shellcheck disable=SC2086 # both may hold several options
run() { java ${KAFKA_HEAP_OPTS:--Xmx384m} ${KAFKA_OPTS:-} -Dlog4j2.configurationFile=/kafka/log4j2.properties -cp '/kafka/libs/*' "$@"; }

if [ ! -f "${KAFKA_LOG_DIRS%%,*}/meta.properties" ]; then
  format=()
  eval "format=(${FORMAT_OPTIONS:-})"
  run kafka.tools.StorageTool format -t "${CLUSTER_ID:-MkU3OEVBNTcwNTJENDM2Qk}" -c "$properties" "${format[@]}"
fi
# shellcheck disable=SC2086 # both may hold several options
exec java ${KAFKA_HEAP_OPTS:--Xmx384m} ${KAFKA_OPTS:-} -Dlog4j2.configurationFile=/kafka/log4j2.properties \
  -cp '/kafka/libs/*' kafka.Kafka "$properties"
