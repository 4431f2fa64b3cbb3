"""The options of the source: what each may be, and what they mean together. Pure: neither pyspark nor confluent_kafka.

model.py has every option. client_settings.py is the only place where the settings of each Kafka client are merged.
"""
