"""Translates settings of Kafka's Java client into settings of librdkafka, without asking a broker.

translation.py runs the steps over one draft (draft.py), which asks librdkafka's library which values it accepts. The tables of
tables.py are enough for most settings. Settings that depend on each other have steps of their own, in login.py and key_stores.py.
secrets.py decides which values must never be shown.
"""
