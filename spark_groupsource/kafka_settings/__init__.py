"""Settings of Kafka's Java client in, settings of librdkafka out. librdkafka's library is asked which values it takes, no broker.

The module translation.py runs the steps over one draft (draft.py). Most settings are translated by the tables of tables.py
alone. Settings that depend on each other have steps of their own, in login.py and key_stores.py. The module secrets.py decides
which values no text may show.
"""
