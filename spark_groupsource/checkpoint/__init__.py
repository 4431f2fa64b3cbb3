"""How far Spark is with a query: what the files of its checkpoint say."""
