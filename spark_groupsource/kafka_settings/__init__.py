"""Translates Kafka's Java client settings to librdkafka settings, without asking a broker.

translation.py runs a list of steps on one draft (draft.py), which asks librdkafka which values it accepts. For most settings, the
tables in tables.py are enough. Settings that depend on each other have their own steps in login.py and key_stores.py. secrets.py
decides which values must never be shown.
"""
