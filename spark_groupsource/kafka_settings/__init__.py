"""Translates settings of Kafka's Java client into settings of librdkafka, without asking a broker.

translation.py runs a list of steps on one draft (draft.py), which asks librdkafka which values it accepts. The tables of
tables.py are enough for most settings. Settings that depend on each other have their own steps, in login.py and key_stores.py.
secrets.py decides which values must never be shown.
"""
