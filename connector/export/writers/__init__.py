"""One writer for each kind of database; they know Arrow tables and nothing of subscribers.

What concerns tables is imported where it is used: an export to a file imports neither SQLAlchemy nor a database's
package.
"""

from connector.export.writers.mode import Mode
from connector.export.writers.run import Changes, Run
from connector.export.writers.writer import Writer

__all__ = ["Changes", "Mode", "Run", "Writer"]
