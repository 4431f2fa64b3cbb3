"""Reads and checks the options of the source and the sink. Pure: it imports neither pyspark nor confluent_kafka.

model.py has the source's options, and sink_model.py the sink's. client_settings.py merges the settings of each client.
"""
