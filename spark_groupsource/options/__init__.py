"""Reads and checks the options of the source and the sink. Pure: imports neither pyspark nor confluent_kafka.

model.py defines the source's options, and sink_model.py the sink's. client_settings.py merges the settings for each client.
"""
