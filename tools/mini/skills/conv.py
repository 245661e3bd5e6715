"""A conversation as data, and its rendering in the `s21` prompt format as control ids and weighted text."""
import json
from dataclasses import dataclass, field

import tokens as tk

DEFAULT_SYSTEM = (
    "You are a helpful, conversationally-fluent assistant made by Poolside. You are here to be helpful to "
    "users through natural language conversations."
)
TOOLS_HEAD = (
    "### Tools\n\nYou may call functions to assist with the user query.\n"
    "All available function signatures are listed below:\n<available_tools>\n"
)
CONTEXT_WEIGHT = 0.1  # of the loss on what the model only reads


@dataclass
class Turn:
    role: str
    text: str = ""
    reasoning: str = ""
    calls: list = field(default_factory=list)  # (name, arguments)


@dataclass
class Conv:
    turns: list
    skill: str
    system: str = DEFAULT_SYSTEM
    tools: list = field(default_factory=list)
    thinking: bool = False
    keep_history: bool = (
        True  # False: reasoning before the last user turn is dropped, as engines do by default
    )
    context_weight: float = CONTEXT_WEIGHT
    check: dict = field(default_factory=dict)  # what an evaluation needs besides the last turn


def user(text):
    return Turn("user", text)


def reply(text, reasoning="", calls=()):
    return Turn("assistant", text, reasoning, list(calls))


def value_text(v):
    return v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)


def system_text(c):
    head = c.system.rstrip()
    if not (head or c.tools or c.thinking):
        return ""
    tools = "".join(json.dumps(t, ensure_ascii=False) + "\n" for t in c.tools)
    block = TOOLS_HEAD + tools + "</available_tools>" if tools else ""
    return f"<system>{head}{chr(10) * 2 if head and block else ''}{block}</system>\n"


def assistant_items(t, thinking, weight, w_ctx):
    """The control token that opens the turn is prompt; all that follows it is the model's to write."""
    if thinking:
        items = [(tk.ASSISTANT, w_ctx), (tk.THINK, 0), (t.reasoning, weight), (tk.END_THINK, weight)]
    else:
        items = [(tk.ASSISTANT, w_ctx), (tk.END_THINK, 0)]
    items.append((t.text, weight))
    for name, args in t.calls:
        pairs = "".join(
            f"<arg_key>{k}</arg_key><arg_value>{value_text(v)}</arg_value>" for k, v in args.items()
        )
        items += [(tk.CALL, weight), (name + pairs, weight), (tk.END_CALL, weight)]
    return items + [(tk.END_ASSISTANT, weight)]


def render(c, open_last=False):
    """List of (id or text, loss weight). With open_last the last turn is left out and its opening is the
    end."""
    w = c.context_weight
    items = [(tk.EOS, 0), (system_text(c), w)]
    last_user = max((i for i, t in enumerate(c.turns) if t.role == "user"), default=-1)
    for i, t in enumerate(c.turns):
        if t.role == "assistant":
            if open_last and i == len(c.turns) - 1:
                return items + [(tk.ASSISTANT, 0), (tk.THINK if c.thinking else tk.END_THINK, 0)]
            stripped = c.thinking and not c.keep_history and i < last_user
            shown = Turn(t.role, t.text, "", t.calls) if stripped else t
            items += assistant_items(shown, c.thinking, 0 if stripped else 1.0, w)
            items.append(("\n", 0))
        else:
            tag = {"tool": "tool_response"}.get(t.role, t.role)
            items.append((f"<{tag}>{t.text}</{tag}>\n", w))
    return items


def raw(text, skill, weight=1.0):
    """A document outside the chat format."""
    c = Conv([], skill)
    c.check["raw"] = [(tk.EOS, 0), (text, weight), (tk.EOS, weight)]
    return c
