"""Where an export goes; each kind of destination imports only what it needs."""
