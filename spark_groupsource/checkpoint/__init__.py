"""How far Spark is with a query: the logs in its checkpoint, and what the driver's program reports of them."""
