"""The durable records of the connector: the state of every identity in every base (architecture 4)."""
