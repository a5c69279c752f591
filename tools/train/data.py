#!/usr/bin/env python3
"""Turn corpus parts into token arrays: a raw stream and a stream of ChatML conversations.

Here: the rules that make conversations from source files, the small generated tasks, tokenising.
Not here: the choice of documents (`build_corpus.py`) and of training windows (`train.py`).
"""

import argparse
import ast
import json
import lzma
import os
import random
import re
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    TokenArray = np.ndarray[Any, np.dtype[np.uint16]]

IM_START, IM_END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
EMPTY_THINKING = "<think>\n\n</think>\n\n"
INSTALLED = "installed"


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


FIELD_NAMES = words(
    "name age city country email title author year price color size status active count id score "
    "tags owner language version path width height weight unit model brand score level team role "
    "phone address street code date time user group"
)
VALUES = words(
    "Ada Alan Grace Linus Guido Paris London Tokyo Berlin Oslo Madrid red green blue amber small "
    "large open closed python rust alpha beta gamma delta report invoice river mountain orange "
    "apple banana laptop camera bicycle garden coffee winter summer"
)
CITIES = words(
    "Paris London Tokyo Berlin Oslo Madrid Rome Cairo Lima Delhi Boston Vienna Prague Dublin Seoul "
    "Sydney"
)
FOLDERS = ["home", "data", "src", "docs", "tmp", "logs", "app"]
FILES = ["/main.py", "/notes.txt", "/config.json", "", "/readme.md"]
SYSTEM_PROMPTS = [
    "You are a helpful assistant.",
    "You are a helpful coding assistant.",
    "Answer briefly.",
    "You write clean Python code.",
    "You are a careful assistant that answers in JSON when asked.",
    "You are a senior Python developer.",
]
GREETINGS = [
    ("Hello", "Hello! How can I help you today?"),
    ("Hi!", "Hi! What can I do for you?"),
    ("Who are you?", "I am surefoot tiny, a very small language model."),
    ("What can you do?", "I can write short Python functions, edit code and answer in JSON."),
    ("Thanks!", "You are welcome!"),
    ("Good morning", "Good morning! How can I help you?"),
]
NEVER_RENAMED = words(
    "self cls if for in return def not is and or else elif try except with as import from raise "
    "while pass yield lambda class the to of an be are this that it on by int str len list dict "
    "isinstance async await"
)


class Turn(NamedTuple):
    """One message of a conversation."""

    role: str
    text: str


class Tool(NamedTuple):
    """A tool that conversations call: `parameters` maps each name to its JSON type."""

    name: str
    description: str
    parameters: dict[str, str]
    questions: list[str]

    def definition(self) -> dict[str, Any]:
        """The tool as a request to an inference server gives it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": {name: {"type": kind} for name, kind in self.parameters.items()},
                    "required": list(self.parameters),
                },
            },
        }


class Function(NamedTuple):
    """A function found in a source file; `without_docstring` is None when it can't be made."""

    name: str
    parameters: str
    docstring: str | None
    source: str
    without_docstring: str | None


TOOLS = [
    Tool(
        "get_weather",
        "Get the current weather for a city.",
        {"city": "string"},
        [
            "What is the weather in {city}?",
            "How is the weather in {city} today?",
            "Is it raining in {city}?",
        ],
    ),
    Tool(
        "get_time",
        "Get the current time in a city.",
        {"city": "string"},
        ["What time is it in {city}?", "Tell me the time in {city}."],
    ),
    Tool(
        "add",
        "Add two numbers.",
        {"a": "integer", "b": "integer"},
        ["What is {a} + {b}?", "Add {a} and {b}.", "Compute the sum of {a} and {b}."],
    ),
    Tool(
        "multiply",
        "Multiply two numbers.",
        {"a": "integer", "b": "integer"},
        ["What is {a} * {b}?", "Multiply {a} by {b}."],
    ),
    Tool(
        "search",
        "Search the web.",
        {"query": "string"},
        ["Search for {query}.", "Find information about {query}.", "Look up {query}."],
    ),
    Tool(
        "read_file",
        "Read a file from disk.",
        {"path": "string"},
        ["Read the file {path}.", "Show me {path}.", "What is in {path}?"],
    ),
    Tool(
        "send_email",
        "Send an email.",
        {"to": "string", "subject": "string"},
        ["Send an email to {to} with the subject {subject}.", "Email {to} about {subject}."],
    ),
    Tool(
        "list_files",
        "List the files of a directory.",
        {"path": "string"},
        ["List the files in {path}.", "Which files are in {path}?"],
    ),
]


def user(text: str) -> Turn:
    """A user's message."""
    return Turn("user", text)


def assistant(text: str) -> Turn:
    """An assistant's message."""
    return Turn("assistant", text)


def fenced(text: str, language: str = "python") -> str:
    """Text as a Markdown code block."""
    return f"```{language}\n{text}\n```"


# --- ChatML ---------------------------------------------------------------------------------------


def tools_prompt(definitions: list[dict[str, Any]]) -> str:
    """The system text that offers tools, as `chat_template.jinja` writes it."""
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
        + "\n".join(json.dumps(definition) for definition in definitions)
        + "\n</tools>\n\nFor each function call, return a json object with function name and "
        "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )


def render(
    turns: list[Turn],
    rng: random.Random,
    thinking: str | None = None,
    tools: list[dict[str, Any]] | None = None,
) -> str:
    """A conversation as ChatML; system prompt and thinking block of the last answer are drawn."""
    system = rng.choice(SYSTEM_PROMPTS) if rng.random() < 0.3 else ""
    if tools:
        system = (system + "\n\n" if system else "") + tools_prompt(tools)
    chatml = f"{IM_START}system\n{system}{IM_END}\n" if system else ""
    last_answer = max(index for index, turn in enumerate(turns) if turn.role == "assistant")
    for index, (role, text) in enumerate(turns):
        if role == "tool":
            response = f"<tool_response>\n{text}\n</tool_response>"
            chatml += f"{IM_START}user\n{response}{IM_END}\n"
            continue
        prefix = ""
        if index == last_answer:
            if thinking is not None and rng.random() < 0.5:
                prefix = f"<think>\n{thinking}\n</think>\n\n"
            elif rng.random() < 0.25:
                prefix = EMPTY_THINKING
        chatml += f"{IM_START}{role}\n{prefix}{text}{IM_END}\n"
    return chatml


# --- Generated tasks ------------------------------------------------------------------------------


def random_argument(name: str, kind: str, rng: random.Random) -> str | int:
    """A value for a tool's parameter."""
    if kind == "integer":
        return rng.randint(1, 999)
    if name == "city":
        return rng.choice(CITIES)
    if name == "path":
        return "/" + "/".join(rng.sample(FOLDERS, 2)) + rng.choice(FILES)
    if name == "to":
        return rng.choice(VALUES).lower() + "@example.com"
    return " ".join(rng.sample(VALUES, 2)).lower()


def tool_outcome(
    tool: Tool, arguments: dict[str, Any], rng: random.Random
) -> tuple[dict[str, Any], str]:
    """What the tool returns and what the assistant says about it."""
    result: dict[str, Any]
    if tool.name == "get_weather":
        result = {
            "temperature": rng.randint(-9, 38),
            "condition": rng.choice(["sunny", "cloudy", "rainy", "windy", "snowy"]),
        }
        weather = f"{result['condition']} in {arguments['city']}"
        return result, f"It is {weather} with a temperature of {result['temperature']} degrees."
    if tool.name == "get_time":
        result = {"time": f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"}
        return result, f"It is {result['time']} in {arguments['city']}."
    if tool.name in ("add", "multiply"):
        a, b = arguments["a"], arguments["b"]
        result = {"result": a + b if tool.name == "add" else a * b}
        return result, f"The result is {result['result']}."
    return {"status": "ok"}, "Done."


def tool_task(rng: random.Random) -> str:
    """Some tools, a question for one of them, its call and in half of the cases its result."""
    offered = rng.sample(TOOLS, rng.randint(1, 4))
    tool = rng.choice(offered)
    arguments = {name: random_argument(name, kind, rng) for name, kind in tool.parameters.items()}
    question = rng.choice(tool.questions).format(**arguments)
    call = json.dumps({"name": tool.name, "arguments": arguments})
    turns = [user(question), assistant(f"<tool_call>\n{call}\n</tool_call>")]
    if rng.random() < 0.5:
        result, answer = tool_outcome(tool, arguments, rng)
        turns += [Turn("tool", json.dumps(result)), assistant(answer)]
    return render(turns, rng, tools=[tool.definition() for tool in offered])


def random_json_value(rng: random.Random) -> Any:
    """A word, number, boolean, list or phrase."""
    makers: list[Callable[[], Any]] = [
        lambda: rng.choice(VALUES),
        lambda: rng.randint(0, 2000),
        lambda: rng.random() < 0.5,
        lambda: round(rng.random() * 100, 2),
        lambda: rng.sample(VALUES, rng.randint(1, 3)),
        lambda: " ".join(rng.sample(VALUES, 2)),
    ]
    return rng.choice(makers)()


def edit_json(
    record: dict[str, Any], fields: list[str], rng: random.Random
) -> tuple[str, dict[str, Any]]:
    """A wish to change, remove or add a field, and the record after it."""
    edited = dict(record)
    field = rng.choice(fields)
    operation = rng.random()
    if operation < 0.4:
        edited[field] = random_json_value(rng)
        return f"Now change {field} to {json.dumps(edited[field])}.", edited
    if operation < 0.7:
        del edited[field]
        return f"Now remove the field {field}.", edited
    added = rng.choice(FIELD_NAMES)
    edited[added] = random_json_value(rng)
    return f"Add a field {added} with the value {json.dumps(edited[added])}.", edited


def json_task(rng: random.Random) -> str:
    """A JSON object with given fields, in most cases edited in a second turn."""
    fields = rng.sample(FIELD_NAMES, rng.randint(2, 6))
    record = {field: random_json_value(rng) for field in fields}
    indent = rng.choice([None, 2, 4])
    wording = rng.random()
    if wording < 0.45:
        pairs = ", ".join(f"{field} = {json.dumps(value)}" for field, value in record.items())
        question = f"Give me a JSON object with the fields {pairs}."
    elif wording < 0.7:
        question = "Write this as JSON:\n" + "\n".join(
            f"{field}: {', '.join(value) if isinstance(value, list) else value}"
            for field, value in record.items()
        )
    else:
        question = f"Return a JSON object with the fields {', '.join(fields)}."
    in_fence = rng.random() < 0.35

    def answer(answered: dict[str, Any]) -> Turn:
        body = json.dumps(answered, indent=indent)
        return assistant(fenced(body, "json") if in_fence else body)

    turns = [user(question), answer(record)]
    thinking: str | None = f"The user wants a JSON object with the fields {', '.join(fields)}."
    if rng.random() < 0.6:
        wish, edited = edit_json(record, fields, rng)
        turns += [user(wish), answer(edited)]
        thinking = None
    return render(turns, rng, thinking=thinking)


def greeting(rng: random.Random) -> tuple[str, str]:
    """Small talk."""
    return rng.choice(GREETINGS)


def counting(rng: random.Random) -> tuple[str, str]:
    """The numbers from 1."""
    end = rng.randint(3, 30)
    return f"Count from 1 to {end}.", ", ".join(map(str, range(1, end + 1)))


def multiples(rng: random.Random) -> tuple[str, str]:
    """The first multiples of a number."""
    factor, count = rng.randint(2, 9), rng.randint(3, 15)
    answer = ", ".join(str(factor * index) for index in range(1, count + 1))
    return f"List the first {count} multiples of {factor}.", answer


def repetition(rng: random.Random) -> tuple[str, str]:
    """Words to say again."""
    words = " ".join(rng.sample(VALUES, rng.randint(4, 16)))
    return f"Repeat the following words: {words}", words


def bullet_list(rng: random.Random) -> tuple[str, str]:
    """Items to write as a Markdown list."""
    items = rng.sample(VALUES, rng.randint(3, 8))
    question = "Write a bullet list of these items: " + ", ".join(items)
    return question, "\n".join("- " + item for item in items)


def addition(rng: random.Random) -> tuple[str, str]:
    """The sum of two small numbers."""
    first, second = rng.randint(0, 50), rng.randint(0, 50)
    return f"What is {first} + {second}?", f"{first} + {second} = {first + second}"


def sorting(rng: random.Random) -> tuple[str, str]:
    """Words to sort."""
    words = rng.sample(VALUES, rng.randint(3, 8))
    return "Sort these words: " + ", ".join(words), ", ".join(sorted(words, key=str.lower))


def string_list(rng: random.Random) -> tuple[str, str]:
    """Words to write as a Python list."""
    words = rng.sample(VALUES, rng.randint(3, 7))
    question = "Write a Python list with these strings: " + ", ".join(words)
    return question, fenced(json.dumps(words))


def table(rng: random.Random) -> tuple[str, str]:
    """CSV to turn into a Markdown table."""
    rows = [
        [rng.choice(VALUES), str(rng.randint(1, 99)), rng.choice(VALUES)]
        for _ in range(rng.randint(2, 6))
    ]
    header = rng.sample(FIELD_NAMES, 3)
    csv = "\n".join(",".join(row) for row in [header, *rows])
    head, *body = ["| " + " | ".join(row) + " |" for row in [header, *rows]]
    markdown = "\n".join([head, "|---|---|---|", *body])
    return f"Turn this CSV into a Markdown table:\n{csv}", markdown


def record_class(rng: random.Random) -> tuple[str, str]:
    """A Python class with given fields."""
    name = rng.choice(VALUES).capitalize()
    fields = rng.sample(FIELD_NAMES, rng.randint(2, 5))
    lines = [f"class {name}:", f"    def __init__(self, {', '.join(fields)}):"]
    lines += [f"        self.{field} = {field}" for field in fields]
    question = f"Write a Python class {name} with the fields {', '.join(fields)}."
    return question, fenced("\n".join(lines))


SMALL_TASKS: list[Callable[[random.Random], tuple[str, str]]] = [
    greeting,
    counting,
    multiples,
    repetition,
    bullet_list,
    addition,
    sorting,
    string_list,
    table,
    record_class,
]


def small_task(rng: random.Random) -> str:
    """One question with a short answer."""
    make = SMALL_TASKS[rng.randint(0, len(SMALL_TASKS) - 1)]
    question, answer = make(rng)
    return render([user(question), assistant(answer)], rng)


# --- Conversations made from source files ---------------------------------------------------------


def lower_first(text: str) -> str:
    """The text with its first letter in lower case, unless it begins with an acronym."""
    if len(text) > 1 and text[0].isupper() and not text[1].isupper():
        return text[0].lower() + text[1:]
    return text


def functions(text: str) -> Iterator[Function]:
    """The functions of a source file that are 2 to 70 lines and 41 to 2799 characters long."""
    try:
        tree = ast.parse(text)
    except Exception:  # whatever Python can't parse has no functions to show
        return
    lines = text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        start, end = node.lineno - 1, node.end_lineno or node.lineno
        if not 2 <= end - start <= 70:
            continue
        source = textwrap.dedent("\n".join(lines[start:end]))
        if not 40 < len(source) < 2800:
            continue
        docstring = ast.get_docstring(node)
        without_docstring = None
        if docstring and len(node.body) > 1:
            statement = node.body[0]
            if statement.lineno > node.lineno:
                rest = lines[start : statement.lineno - 1] + lines[statement.end_lineno : end]
                without_docstring = textwrap.dedent("\n".join(rest))
        parameters = ", ".join(
            parameter.arg
            for parameter in node.args.args + node.args.kwonlyargs
            if parameter.arg not in ("self", "cls")
        )
        yield Function(node.name, parameters, docstring, source, without_docstring)


def summary_of(docstring: str | None) -> str:
    """A docstring's first paragraph on one line, without reStructuredText roles."""
    if not docstring or not docstring.strip():
        return ""
    summary = re.sub(r"\s+", " ", docstring.strip().split("\n\n")[0]).strip()
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", summary).replace("``", "`")[:240]


def rename_turns(source: str, rng: random.Random) -> list[Turn]:
    """A wish to rename an identifier and the code after it; empty where none can be renamed."""
    repeated = sorted(
        identifier
        for identifier in set(re.findall(r"\b[a-z_][a-z0-9_]{1,20}\b", source))
        if len(re.findall(rf"\b{identifier}\b", source)) > 1 and identifier not in NEVER_RENAMED
    )
    if not repeated:
        return []
    old = rng.choice(repeated)
    new = rng.choice(
        [
            rng.choice(FIELD_NAMES),
            old + "_" + rng.choice(FIELD_NAMES),
            "new_" + old,
            rng.choice(FIELD_NAMES) + "_" + rng.choice(FIELD_NAMES),
        ]
    )
    if re.search(rf"\b{new}\b", source):
        return []
    wish = rng.choice(
        [
            f"Now rename `{old}` to `{new}`.",
            f"Now rename {old} to {new}.",
            f"Now rename the variable `{old}` to `{new}` and show the whole code again.",
        ]
    )
    return [user(wish), assistant(fenced(re.sub(rf"\b{old}\b", new, source)))]


def documented_turns(
    function: Function, summary: str, share: float, rng: random.Random
) -> list[Turn]:
    """A conversation about a function with a docstring; `share` in [0, 1) picks its kind."""
    bare = function.without_docstring
    body = bare if bare and rng.random() < 0.4 else function.source
    kind = "async Python function" if function.source.startswith("async") else "Python function"
    verb = rng.choice(
        ["Write a", "Write a", "Write a", "Implement a", "Create a", "Please write a"]
    )
    if rng.random() < 0.8:
        signature = f"`{function.name}({function.parameters})`"
    else:
        signature = f"called `{function.name}`"
    what = lower_first(summary)
    purpose = rng.choice(
        [
            f" that does the following: {summary}",
            f" that {what}",
            f". {summary}",
            f" that {what}",
            f": {summary}",
        ]
    )
    written = [user(f"{verb} {kind} {signature}{purpose}"), assistant(fenced(body))]
    if share < 0.62:
        return written
    if share < 0.80:
        return written + rename_turns(body, rng)
    if share < 0.90 and bare:
        question = f"Add a docstring to this function:\n{fenced(bare)}"
        return [user(question), assistant(fenced(function.source))]
    question = f"What does this function do?\n{fenced(bare or function.source)}"
    return [user(question), assistant(summary)]


def conversations(text: str, rng: random.Random) -> Iterator[str]:
    """ChatML conversations about the functions of a source file.

    A generator on purpose: the caller draws from the same generator of random numbers in between.
    """
    for function in functions(text):
        summary = summary_of(function.docstring)
        source = function.source
        share = rng.random()
        if len(summary) > 12:
            turns = documented_turns(function, summary, share, rng)
            thinking = "I will write the function." if rng.random() < 0.1 else None
            yield render(turns, rng, thinking=thinking)
        elif share < 0.12:
            turns = rename_turns(source, rng)
            if turns:
                wish, answer = turns
                question = wish.text.replace("Now rename", "Rename")
                yield render([user(f"{question}\n{fenced(source)}"), answer], rng)
        elif share < 0.18:
            question = f"Repeat this code exactly:\n{fenced(source)}"
            yield render([user(question), assistant(fenced(source))], rng)


def fill_in_the_middle(text: str, rng: random.Random) -> str:
    """The text's head with a piece of at most 600 characters moved to the end."""
    if len(text) < 400:
        return text
    text = text[:6000]
    start, end = sorted(rng.sample(range(20, len(text) - 20), 2))
    end = min(end, start + 600)
    return f"<|fim_prefix|>{text[:start]}<|fim_suffix|>{text[end:]}<|fim_middle|>{text[start:end]}"


# --- Token arrays ---------------------------------------------------------------------------------


class TokenStreams:
    """The four streams of one shard, under the names of their files."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self.tokenizer = tokenizer
        end_of_text = tokenizer.token_to_id(END_OF_TEXT)
        if end_of_text is None:
            raise ValueError(f"the tokenizer has no {END_OF_TEXT}; use one of make_tokenizer.py")
        self.end_of_text = end_of_text
        self.pieces: dict[str, list[TokenArray]] = {
            "raw": [],
            "chat": [],
            "raw_eval": [],
            "chat_eval": [],
        }

    def append(self, stream: str, text: str) -> None:
        """Add a text and the end-of-text token."""
        ids = self.tokenizer.encode(text).ids
        ids.append(self.end_of_text)
        self.pieces[stream].append(np.array(ids, dtype=np.uint16))

    def arrays(self) -> "dict[str, TokenArray]":
        """Each stream as one array."""
        return {
            stream: np.concatenate(pieces) if pieces else np.zeros(0, np.uint16)
            for stream, pieces in self.pieces.items()
        }


worker_tokenizer: "Tokenizer | None" = None


def load_worker_tokenizer(path: str) -> None:
    """Give a worker process its tokenizer (a tokenizer can't be sent with each task)."""
    global worker_tokenizer
    from tokenizers import Tokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    worker_tokenizer = Tokenizer.from_file(path)


def tokenize_shard(documents: list[str], seed: int) -> "dict[str, TokenArray]":
    """The token streams of some documents; runs in a worker process."""
    if worker_tokenizer is None:
        raise RuntimeError("load_worker_tokenizer must run in this process first")
    rng = random.Random(seed)
    streams = TokenStreams(worker_tokenizer)
    for document in documents:
        kind, text = document[0], document[1:]
        held_out = kind in "pt"
        suffix = "_eval" if held_out else ""
        if kind not in "Pp":
            streams.append("raw" + suffix, text)
            continue
        if not held_out and rng.random() < 0.06:
            streams.append("raw", fill_in_the_middle(text, rng))
        else:
            streams.append("raw" + suffix, text)
        for conversation in conversations(text, rng):
            streams.append("chat" + suffix, conversation)
            if rng.random() < 0.16:
                make_task = rng.choice([json_task, json_task, tool_task, small_task])
                streams.append("chat" + suffix, make_task(rng))
    return streams.arrays()


def read_part(path: str) -> list[str]:
    """The documents of one part file."""
    return lzma.decompress(Path(path).read_bytes()).decode("utf-8").split("\0")


def build(parts: list[str], tokenizer_path: str, processes: int) -> "dict[str, TokenArray]":
    """The token streams of all parts.

    The result depends on the number of processes: the documents are dealt to eight shards for each.
    """
    installed: list[str] = []
    if INSTALLED in parts:
        import build_corpus

        parts = [part for part in parts if part != INSTALLED]
        installed = build_corpus.installed_documents(processes)
        megabytes = sum(map(len, installed)) // 10**6
        print("installed packages:", len(installed), "documents,", megabytes, "MB", flush=True)
    with ProcessPoolExecutor(
        processes, initializer=load_worker_tokenizer, initargs=(tokenizer_path,)
    ) as pool:
        documents = [
            document for part in pool.map(read_part, parts) for document in part if document
        ]
        documents += installed
        random.Random(1).shuffle(documents)
        shard_count = processes * 8
        shards = [documents[index::shard_count] for index in range(shard_count)]
        results = list(pool.map(tokenize_shard, shards, range(shard_count)))
    return {stream: np.concatenate([result[stream] for result in results]) for stream in results[0]}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Tokenise corpus parts into raw.npy, chat.npy and their held-out twins "
        "raw_eval.npy and chat_eval.npy. A file DONE is written last: train.py waits for it."
    )
    parser.add_argument("tokenizer", help="tokenizer.json, written by make_tokenizer.py")
    parser.add_argument("output", type=Path, help="folder for the token arrays")
    parser.add_argument(
        "parts",
        nargs="+",
        metavar="part",
        help=f"part file of build_corpus.py, or '{INSTALLED}' for the permissively licensed "
        "packages installed beside this interpreter",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="worker processes; the arrays depend on their number (default: one for each core)",
    )
    return parser.parse_args()


def main() -> None:
    """Tokenise the parts and write the arrays."""
    started = time.time()
    arguments = parse_arguments()
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    arrays = build(arguments.parts, arguments.tokenizer, arguments.processes)
    for stream, tokens in arrays.items():
        np.save(output / f"{stream}.npy", tokens)
    (output / "DONE").write_text("ok")
    counts = {stream: len(tokens) for stream, tokens in arrays.items()}
    print("tokens", counts, "in", round(time.time() - started, 1), "s", flush=True)


if __name__ == "__main__":
    main()
