"""Templates of emails over the columns of one row: Jinja's language, cut down to what is bounded.

Jinja is asked for only where there is a template.
"""

from connector.mail.templates.template import LONGEST, MOST_STEPS, MailTemplate, RowTemplateError, compile_text

__all__ = ["LONGEST", "MOST_STEPS", "MailTemplate", "RowTemplateError", "compile_text"]
