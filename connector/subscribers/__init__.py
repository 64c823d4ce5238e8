"""From the rows of a source to valid subscribers with an identity: headers, mapping, validation, suppression. Pure."""
