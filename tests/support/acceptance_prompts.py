"""The five prompts by which llama-server's acceptance was measured; they live in `tools/train`."""

import runpy
from pathlib import Path

_SCRIPT = Path(__file__).parents[2] / "tools" / "train" / "acceptance.py"

PROMPTS: list[str] = runpy.run_path(str(_SCRIPT))["PROMPTS"]
"""What users ask; at most 200 tokens are generated for each."""
