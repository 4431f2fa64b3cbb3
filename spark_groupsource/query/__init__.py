"""One run of one query: joining, planning, claiming and confirming, without pyspark."""
