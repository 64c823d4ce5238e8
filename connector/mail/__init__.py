"""From what a person says of an email to a message that the service can take, and to sending it at most once."""
