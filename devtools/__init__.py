"""What a developer of this project runs and no wheel contains.

broker/         the development broker: real Apache Kafka on this machine (`make broker`)
demo/           two queries that share a group, and a count of every record (`make demo`)
install.py      an environment with an extra of this project
spark_home.py   a home of Spark whose Python processes start sooner
checkpoints.py  checkpoints that start no processes
program.py      a command, with errors as messages
errors.py       what only these raise
"""
