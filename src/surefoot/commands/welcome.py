"""What a server says of itself when it is ready."""

from surefoot.commands.cache_options import cache_line
from surefoot.engine import Facts
from surefoot.engine.cache import CacheSettings


def welcome(url: str, facts: Facts, cache: CacheSettings) -> str:
    """The lines.

    Args:
        url: where it listens.
        facts: what it runs.
        cache: the budgets of the prompt cache.
    """
    drafter = "none (speculation is off)"
    if facts.drafter:
        drafter = f"{facts.drafter}, at most {facts.max_draft} tokens a draft"
    if facts.synthetic:
        drafter += ", accepted by chance: THE TEXT IS NOT THE MODEL'S"
    return (
        f"surefoot: {facts.info.name} ({facts.info.architecture}, {facts.info.memory}), "
        f"{facts.slots} slots of {facts.context_length} tokens\n"
        f"surefoot: drafter {drafter}, rejected drafts undone by {facts.rollback.kind}\n"
        f"surefoot: prompt cache {cache_line(facts.cache, cache)}\n"
        f"surefoot: strict decoding {_strict(facts)}\n"
        f"surefoot: listening on {url}, OpenAI base URL {url}/v1 (Ctrl-C ends it)"
    )


def _strict(facts: Facts) -> str:
    exactness = facts.exactness
    if not exactness.get("strict"):
        return f"is not available: {exactness.get('refusal', 'not measured')}"
    return (
        f"in passes of {exactness['strict']} tokens: a plain round costs "
        f"{exactness['plain_cost']:.2f} and a prefill "
        f"{exactness['prefill_cost']:.2f} times as much as a fast one"
    )
