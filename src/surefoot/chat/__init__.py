"""Chat formats: from messages to the text that a model was trained to answer.

Knows templates and messages, and neither tokens nor HTTP.
"""

from surefoot.chat.template import ChatTemplate, ChatTemplateError, template_for

__all__ = ["ChatTemplate", "ChatTemplateError", "template_for"]
