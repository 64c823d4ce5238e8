"""Destinations of exports. Each kind of destination imports only the libraries that it needs."""
