"""Programs for developers of this project. No wheel contains them.

broker/         the development broker: real Apache Kafka on this machine (`make broker`)
demo/           two queries that share a group, and a count of every record (`make demo`)
records.py      a topic with records (`make records`)
registry.py     a schema registry (`make registry`)
install.py      makes an environment with this project and one of its extras
spark_home.py   a SPARK_HOME with which Python processes start faster
checkpoints.py  checkpoints that Spark writes without starting processes
program.py      runs a command, and prints its errors as messages
errors.py       the errors of these programs
"""
