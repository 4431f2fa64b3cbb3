#!/bin/sh
# Submit conf/orders.py to a standalone cluster, with the settings and the log4j2.properties of this folder:
#
#   SPARK_MASTER=spark://localhost:7077 conf/submit.sh conf/orders.properties /data/checkpoints/billing-1 /data/orders-1
#
# A second query of the group needs its own checkpoint and output. Two queries on one checkpoint are refused.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
SPARK_CONF_DIR="$here" exec "${SPARK_HOME:+$SPARK_HOME/bin/}spark-submit" \
    --master "${SPARK_MASTER:-spark://localhost:7077}" --deploy-mode client --name orders \
    "$here/orders.py" "$@"
