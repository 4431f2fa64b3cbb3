"""Options of the broker's JVM."""

STOCK_FLAGS = (
    "-Xms1G",
    "-Xmx1G",
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""The options of kafka-server-start.sh. They undo those of the development broker, which is tuned for a short life."""
