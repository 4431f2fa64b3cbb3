"""Reads and checks the options of the source and the sink. Pure: it imports neither pyspark nor confluent_kafka.

model.py has every option. client_settings.py is the only place where the settings of each Kafka client are merged.
"""
