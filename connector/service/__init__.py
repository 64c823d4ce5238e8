"""The service over HTTP: requests and answers as values, a client with three operations, and the rules for retries."""
