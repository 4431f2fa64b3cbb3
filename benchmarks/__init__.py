"""`make bench`: this source, native and pure, and Spark's own `kafka` source, in turn, in one Spark session on one broker."""
