"""HTTP: an engine served to clients of OpenAI's API.

`create_app` makes the application, `serve` runs it. Nothing here chooses a token.
"""

from surefoot.server.answer_settings import AnswerSettings
from surefoot.server.app import create_app
from surefoot.server.lifecycle import serve
from surefoot.server.listening import ListenError, bind

__all__ = ["AnswerSettings", "ListenError", "bind", "create_app", "serve"]
