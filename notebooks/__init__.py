"""The notebooks, and what runs them (`make notebooks`)."""
