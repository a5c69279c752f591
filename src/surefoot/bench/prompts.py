"""The built-in prompts, by kind: how much of the answer can be found in what came before."""

from typing import NamedTuple


class Prompt(NamedTuple):
    """A user's message, and what kind of task it is."""

    kind: str
    text: str


_CACHE = """class Cache:
    def __init__(self, size):
        self.size = size
        self.data = {}

    def get(self, key, default=None):
        return self.data.get(key, default)

    def set(self, key, value):
        if len(self.data) >= self.size:
            self.data.popitem()
        self.data[key] = value
"""

_TOTAL = """def total(items, value=None):
    if value is None:
        value = 0
    for item in items:
        value += item.price * item.count
    if value < 0:
        raise ValueError("value must not be negative")
    return value
"""

PROMPTS = (
    Prompt("copy", f"Repeat this code exactly:\n```python\n{_CACHE}```"),
    Prompt("copy", f"Repeat this code exactly:\n```python\n{_TOTAL}```"),
    Prompt("edit", f"Rename `value` to `amount`.\n```python\n{_TOTAL}```"),
    Prompt("edit", f"Add a docstring to this function:\n```python\n{_TOTAL}```"),
    Prompt("code", "Write a Python function `flatten(items)` that flattens a nested list."),
    Prompt("code", "Write a Python function `read_json(path)` that reads a JSON file."),
    Prompt("json", 'Give me a JSON object with the fields name = "Ada", age = 36, active = true.'),
    Prompt("prose", "Explain what a hash table is."),
)
"""Two or so of each kind."""
