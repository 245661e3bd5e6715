"""Tool use: choosing a tool, copying arguments with their types, not calling, using results, chains."""
import json

from .conv import Conv, Turn, reply, user
from .everyday import NATURAL
from .params import GENERIC, Param
from .persona import PERSONA
from .words import COLOR, article, held_out, join, ways

VERBS = """add archive book build cancel change check clean close compare copy count create delete describe
download edit export fetch file find format get hide import inspect install list load lock log mark measure
merge move open order pause plan play print publish query read record remove rename rent repair reserve reset
resize restart run save scan schedule search send set share show start stop store summarize sync test track
translate unlock update upload validate view write""".split()
NOUNS = """account address alarm album appointment article backup balance bill book branch bug build calendar
call car card chart city client clock color comment commit contact container contract course customer database
deployment device directory disk document door email employee error event exchange_rate file flight folder
forecast form game hotel image invoice issue item job key label lamp language letter license light line list
log map meeting member memory menu message meter movie music network note notification number order package
page password patient payment person phone photo picture plan playlist price printer process product profile
project queue question recipe record reminder report request reservation resource result review role room
route rule schedule score sensor server service shipment shop song stock story student subscription survey
table tag task team temperature test text ticket time timer todo token trip user video volume weather window
word workflow""".split()
STYLES = (
    lambda v, n: f"{v}_{n}",
    lambda v, n: f"{v}_{n}",
    lambda v, n: v + "".join(p.capitalize() for p in n.split("_")),
    lambda v, n: f"{n}_{v}",
    lambda v, n: f"{v}-{n.replace('_', '-')}",
)


class Tool:
    def __init__(self, d, taken=()):
        def make():
            return d.pick(VERBS), d.pick(NOUNS)

        while True:
            self.verb, self.noun = d.fresh(make, "tool")
            self.name = d.pick(STYLES)(self.verb, self.noun)
            if (self.verb, self.noun) not in taken:
                break
        self.params = []
        for _ in range(d.pick((0, 1, 1, 2, 2, 3, 4))):
            self.params.append(Param(d, [p.name for p in self.params]))
        self.required = [p for p in self.params if d.chance(0.65)]
        self.action = f"{self.verb} {article(self.noun.replace('_', ' '))}"
        self.about = d.pick(
            (
                f"{self.verb.capitalize()} {article(self.noun.replace('_', ' '))}.",
                f"{self.verb.capitalize()} {article(self.noun.replace('_', ' '))} and return the result.",
                f"Use this to {self.action}.",
                f"Tool to {self.action}.",
            )
        )
        self.spec = None

    def json(self, d):
        if self.spec is None:
            params = {"type": "object", "properties": {p.name: p.schema(d) for p in self.params}}
            if self.required:
                params["required"] = [p.name for p in self.required]
            fn = {"name": self.name, "description": self.about, "parameters": params}
            if d.chance(0.1):
                del fn["description"]
            self.spec = {"type": "function", "function": fn}
        return self.spec

    def arguments(self, d):
        return {p.name: p.make(d) for p in self.params if p in self.required or d.chance(0.5)}

    def request(self, d, args, wrap=True):
        by_name = {p.name: p for p in self.params}
        parts = [by_name[k].say(d, v) for k, v in args.items()]
        if d.chance(0.2):
            d.r.shuffle(parts)
        noun = self.noun.replace("_", " ")
        what = d.pick((article(noun), f"the {noun}", f"the {noun}", noun))
        text = " ".join([f"{self.verb} {what}", *parts])
        if not wrap:
            return text
        t = d.say(
            "Please {t}.",
            "{T}.",
            "Can you {t}?",
            "I want you to {t}.",
            "{T}, please.",
            "Could you {t}?",
            "I need you to {t}.",
            "Would you {t}?",
            "You should {t}.",
            "Now {t}.",
            "Go ahead and {t}.",
            "I'd like to {t}.",
            "Help me {t}.",
            "Kindly {t}.",
            "Please do this: {t}.",
            "Will you {t}?",
            "I would like you to {t}.",
            "Your task: {t}.",
            "We have to {t}.",
            "Let's {t}.",
            "Are you able to {t}?",
            "Be so kind and {t}.",
            "I must {t}.",
            "Hey, {t}.",
            "Next, {t}.",
            "It is time to {t}.",
            "Try to {t}.",
        )
        return t.format(t=text, T=text[0].upper() + text[1:])

    def why(self, args):
        given = ", ".join(
            f"{k} = {json.dumps(v, ensure_ascii=False) if not isinstance(v, str) else v}"
            for k, v in args.items()
        )
        return f"The tool for this is {self.name}." + (f" {given}" if given else "")


def toolbox(d, n=None):
    tools, taken = [], set()
    for _ in range(n or d.pick((1, 1, 2, 2, 3, 3, 4, 5, 6, 8))):
        t = Tool(d, taken)
        taken.add((t.verb, t.noun))
        if t.name not in [x.name for x in tools]:
            tools.append(t)
    if len(tools) > 1 and d.chance(
        0.3
    ):  # a neighbour that shares the noun or the verb makes the choice matter
        t = Tool(d, taken)
        twin = d.pick(tools)
        if (
            d.chance(0.5)
            and held_out("tool", (t.verb, twin.noun)) == d.test
            and (t.verb, twin.noun) not in taken
        ):
            t.noun = twin.noun
            t.name = f"{t.verb}_{t.noun}"
            t.action = f"{t.verb} {article(t.noun.replace('_', ' '))}"
            t.about = f"{t.verb.capitalize()} {article(t.noun.replace('_', ' '))}."
            if t.name not in [x.name for x in tools]:
                tools.append(t)
    d.r.shuffle(tools)
    return tools


def result(d, tool, args):
    """What a tool answers: text for the prompt and a sentence that uses it."""
    x = d.r.random()
    if x < 0.12:
        err = d.pick(
            (
                "not found",
                "permission denied",
                "timeout",
                "invalid argument",
                "service unavailable",
                "quota exceeded",
            )
        )
        return json.dumps({"error": err}), f"The call of {tool.name} failed: {err}."
    if x < 0.25:
        v = d.pick((lambda: str(d.int(0, 9999)), d.pseudo, d.thing, d.code))()
        return v, f"The result is {v}."
    if x < 0.35:
        items = [d.pick((d.noun, d.pseudo, d.first))() for _ in range(d.int(1, 4))]
        return json.dumps(items), f"The result is {join(items)}."
    if x < 0.45:
        return "ok", "Done."
    fields = {}
    for _ in range(d.int(1, 3)):
        name, make = d.pick(
            (
                ("id", lambda: d.int(1, 99999)),
                ("status", lambda: d.pick(("ok", "done", "open", "queued", "sent"))),
                ("temperature", lambda: d.int(-20, 40)),
                ("price", d.price),
                ("name", d.full_name),
                ("size", lambda: d.int(1, 9999)),
                ("city", d.city),
                ("time", d.time),
                ("date", d.iso_date),
                ("count", lambda: d.int(0, 500)),
                ("code", d.code),
                ("url", lambda: f"https://{d.pseudo()}.org/{d.pseudo()}"),
                ("color", lambda: d.word(COLOR)),
                ("owner", d.first),
                ("version", lambda: f"{d.int(0, 9)}.{d.int(0, 20)}.{d.int(0, 9)}"),
                ("weather", lambda: d.pick(("sunny", "rainy", "cloudy", "windy", "snowy"))),
            )
        )
        fields[name] = make()
    said = join(f"{k} {v}" for k, v in fields.items())
    return json.dumps(fields, ensure_ascii=False), f"The result: {said}."


SYSTEMS = [
    "",
    "You are a helpful assistant.",
    "You are an agent with tools.",
    "Use the tools when they help.",
]


def conv(d, turns, tools, skill, **check):
    c = Conv(
        turns,
        skill,
        tools=[t.json(d) for t in tools],
        thinking=d.chance(0.5),
        keep_history=d.chance(0.5),
        check=check,
    )
    if d.chance(0.35):
        c.system = d.pick(SYSTEMS)
    if not c.thinking:
        for t in turns:
            t.reasoning = ""
    return c


def single(d):
    tools = toolbox(d)
    t = d.pick(tools)
    args = t.arguments(d)
    turns = [user(t.request(d, args)), reply("", t.why(args), [(t.name, args)])]
    if d.chance(0.5) and not d.test:
        text, said = result(d, t, args)
        turns += [Turn("tool", text), reply(said)]
        if d.chance(0.25):
            t = d.pick(tools)
            args = t.arguments(d)
            turns += [user(t.request(d, args)), reply("", t.why(args), [(t.name, args)])]
    return conv(d, turns, tools, "tool call")


class NaturalTool:
    """A hand-written tool: the same interface as Tool as far as toolboxes need it."""

    def __init__(self, d, row):
        self.name, self.about, self.types, self.draw, self.asks, self.answer = row
        self.verb, self.noun = self.name.split("_")[0], self.name.split("_")[-1]
        self.params = []
        self.spec = {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.about,
                "parameters": {
                    "type": "object",
                    "properties": {k: {"type": v} for k, v in self.types.items()},
                    "required": list(self.types),
                },
            },
        }

    def json(self, d):
        return self.spec

    why = Tool.why


def natural(d):
    """Everyday questions that a tool answers."""
    rows = d.r.sample(NATURAL, d.int(1, 4))
    tools = [NaturalTool(d, r) for r in rows] + ([] if d.chance(0.5) else toolbox(d, d.int(1, 3)))
    t = tools[d.int(0, len(rows) - 1)]
    names = [x.name for x in tools]
    tools = [x for i, x in enumerate(tools) if names.index(x.name) == i]
    args = t.draw(d)
    d.r.shuffle(tools)
    turns = [user(d.say(*t.asks).format(**args)), reply("", t.why(args), [(t.name, args)])]
    if not d.test:
        res, said = t.answer(d, args)
        text = said.format(**{**args, **res})
        turns += [Turn("tool", json.dumps(res, ensure_ascii=False)), reply(text)]
        if d.chance(0.3):
            args = t.draw(d)
            turns += [user(d.say(*t.asks).format(**args)), reply("", t.why(args), [(t.name, args)])]
    return conv(d, turns, tools, "tool call")


def use_result(d):
    tools = toolbox(d)
    t = d.pick(tools)
    args = t.arguments(d)
    text, said = result(d, t, args)
    turns = [
        user(t.request(d, args)),
        reply("", t.why(args), [(t.name, args)]),
        Turn("tool", text),
        reply(said),
    ]
    return conv(d, turns, tools, "tool result")


LINKS = (
    ", then ",
    " and then ",
    "; after that ",
    ". Then ",
    ", and then ",
    ". After that, ",
    "; then ",
    ", after that ",
    ". Next, ",
    ", next ",
    " and after that ",
    ". Afterwards, ",
    ", and afterwards ",
    "; afterwards ",
    "; next ",
    ". When that is done, ",
    "; when this is done, ",
    ", and next ",
    ". Once done, ",
    "; once this is done, ",
    ". As the next step, ",
    "; and then ",
    ".\nThen ",
    "; now ",
    ", and only then ",
    ". Later, ",
    "; later ",
    ", later on ",
    " before you ",
    ". Subsequently, ",
    "; following this, ",
    ". Following that, ",
    ", thereafter ",
    ". Having done that, ",
    "; with that done, ",
    ". And then ",
    "; in the next step ",
    ". Now ",
    ", and finally ",
    "; as soon as that is ready, ",
    ". Right after, ",
    "; right after that ",
)
CHAIN_ASKS = ways(
    """First {t}. | Please {t}. | {T}. | Do this in order: {t}. | I want you to {t}. | Could you {t}? | Can you {t}? |
    {T}, please. | Step by step: {t}. | Your tasks: {t}. | To do: {t}. | I need several things: {t}. |
    One after the other: {t}. | Now {t}. | In this order: {t}. | You should first {t}. | Would you {t}? |
    Work through this: {t}. | Please do the following: {t}. | I'd like you to first {t}. | Begin: {t}. |
    Several steps, please: {t}. | Here is the plan: {t}. | Start with this: {t}. | Help me {t}."""
)


def link(d):
    """What stands between two steps; in training now and then with a word that no list has."""
    if d.test or not d.chance(0.12):
        return d.say(*LINKS)
    w = d.pseudo()
    return d.pick(
        (
            f", {w} ",
            f"; {w} ",
            f". {w.capitalize()}, ",
            f" and {w} ",
            f"; {w} that ",
            f". {w.capitalize()} this, ",
        )
    )


def chain(d):
    tools = toolbox(d, d.int(2, 6))
    todo = [d.pick(tools) for _ in range(d.int(2, min(4, 1 + len(tools))))]
    steps = [(t, t.arguments(d)) for t in todo]
    parts = [t.request(d, a, wrap=False) for t, a in steps]
    same = link(d) if d.chance(0.6) else None
    text = parts[0] + "".join((same or link(d)) + p for p in parts[1:])
    turns = [user(d.say(*CHAIN_ASKS).format(t=text, T=text[0].upper() + text[1:]))]
    said = []
    for i, (t, a) in enumerate(steps):
        text, s = result(d, t, a)
        said.append(s)
        why = f"Step {i + 1} of {len(steps)}. {t.why(a)}"
        turns += [reply("", why, [(t.name, a)]), Turn("tool", text)]
    turns.append(reply(" ".join(said), "All steps are done."))
    return conv(d, turns, tools, "tool chain")


PASS_ASKS = ways(
    """{x}, and {y} with the {k} from the result. | {x}. Then {y} using the {k} you get. |
    {x}; use the returned {k} to {y}. | {x}, then {y} with the {k} it returns. |
    {x} and {y} with the {k} that comes back. | First {x}. With the {k} from that, {y}. |
    {x}. Take the {k} of the answer and {y}. | {x}; then take its {k} to {y}. |
    I want you to {x} and, with the {k} it gives, {y}. | Please {x}, and pass the {k} on to {y}. |
    {x}. Feed the {k} into the next call: {y}. | {x} to learn the {k}, and {y} with it. |
    get the {k}: {x}. Then {y} with it. | {x}, read the {k} from the answer and {y}. |
    Can you {x} and then use the {k} in the result to {y}? | {x}. The {k} in the answer is needed to {y}. |
    {x}; with that {k}, {y}. | {x}, and after that {y} with the {k} you received. |
    {x}. Once you have the {k}, {y} with it. | {x}; the {k} you are given serves to {y}. |
    Could you {x}, take the {k} and {y}? | {x}. Whatever {k} it returns, {y} with it. |
    {x}; afterwards {y}, and use the {k} from before. | {x} and hand the {k} over to {y}."""
)


def pass_on(d):
    """The second call takes a value out of the first one's result."""
    tools = toolbox(d, d.int(2, 5))
    a, b = d.r.sample(tools, 2) if len(tools) > 1 else (tools[0], tools[0])
    key = d.pick(("id", "code", "name", "city", "path"))
    value = {
        "id": lambda: d.int(1, 99999),
        "code": d.code,
        "name": d.full_name,
        "city": d.city,
        "path": d.path,
    }[key]()
    p = Param(d, [])
    p.name, p.type, p.enum, p.about, p.plain, p.phrases = (
        key,
        "integer" if key == "id" else "string",
        None,
        f"The {key}",
        False,
        GENERIC,
    )
    p.make = lambda d: value
    b.params = [p] + [x for x in b.params if x.name != key][:2]
    b.required, b.spec = [p], None
    args_a, args_b = a.arguments(d), {key: value}
    if a is b:
        args_a = {key: d.int(1, 9) if key == "id" else d.pseudo()}
    ask = d.say(*PASS_ASKS).format(
        x=a.request(d, args_a, False), y=f"{b.verb} the {b.noun.replace('_', ' ')}", k=key
    )
    extra = {"status": "ok"} if d.chance(0.5) else {"size": d.int(1, 999)}
    text, said = result(d, b, args_b)
    turns = [
        user(ask[0].upper() + ask[1:]),
        reply("", f"Step 1 of 2. {a.why(args_a)}", [(a.name, args_a)]),
        Turn("tool", json.dumps({key: value, **extra}, ensure_ascii=False)),
        reply("", f"Step 2 of 2. {b.why(args_b)}", [(b.name, args_b)]),
        Turn("tool", text),
        reply(said, "All steps are done."),
    ]
    return conv(d, turns, tools, "tool chain")


BOTH_ASKS = ways(
    """{x}, and also {y}. | Do both: {x} and {y}. | At the same time, {x} and {y}. | {x}; at the same time, {y}. |
    Both at once: {x} and {y}. | {x} and, in parallel, {y}. | Together: {x}; {y}. | {x}. Also {y}. |
    Two things at once: {x}; {y}. | In one go, {x} and {y}. | {x}, and likewise {y}. | {x} as well as {y}. |
    Please {x} and also {y}. | Side by side: {x} and {y}."""
)


def parallel(d):
    """Two calls in one turn."""
    tools = toolbox(d)
    t = d.pick([x for x in tools if x.params] or tools)
    a, b = t.arguments(d), t.arguments(d)
    if not a or a == b or set(a) != set(b):
        return single(d)
    q = d.say(*BOTH_ASKS).format(x=t.request(d, a, False), y=t.request(d, b, False))
    turns = [user(q[0].upper() + q[1:]), reply("", f"Two calls of {t.name}.", [(t.name, a), (t.name, b)])]
    (ra, sa), (rb, sb) = result(d, t, a), result(d, t, b)
    if d.chance(0.6):
        turns += [Turn("tool", ra), Turn("tool", rb), reply(f"{sa} {sb}")]
    return conv(d, turns, tools, "tool parallel")


def refuse(d):
    """No tool fits, or none is needed."""
    tools = toolbox(d)
    x = d.r.random()
    names = join(t.name for t in tools)
    if x < 0.7:
        taken = {(t.verb, t.noun) for t in tools}
        other = Tool(d, taken)
        while any(other.noun == t.noun for t in tools) and d.chance(0.8):
            other = Tool(d, taken)
        q = other.request(d, other.arguments(d))
        a = f"I have no tool to {other.verb} {article(other.noun.replace('_', ' '))}."
        why = f"The user wants to {other.action}. I have {names}. None of them does this."
    else:
        asks, a = d.pick(PERSONA)
        q, why = d.say(*asks), "No tool is needed."
    return conv(d, [user(q), reply(a, why)], tools, "tool none")


GIVEN = ways(
    """{v} | It is {v}. | {v}, please. | Take {v}. | {n} {v} | Use {v}. | The {n} is {v}. | Let it be {v}. |
    Oh, {v}. | I mean {v}. | {v} will do. | Sorry: {v} | Then {v}. | {v} as the {n}. | Make it {v}."""
)


def missing(d):
    """A required argument was not given."""
    tools = toolbox(d)
    t = d.pick(tools)
    if not t.required:
        return single(d)
    p = d.pick(t.required)
    args = {k: v for k, v in t.arguments(d).items() if k != p.name}
    v = p.make(d)
    label = p.name.replace("_", " ")
    full = {x.name: args.get(x.name, v) for x in t.params if x.name in args or x is p}
    said = join(v) if isinstance(v, list) else str(v).lower() if isinstance(v, bool) else str(v)
    turns = [
        user(t.request(d, args)),
        reply(f"Which {label}?", f"{t.name} needs {p.name}, which is missing."),
        user(d.say(*GIVEN).format(v=said, n=label)),
        reply("", t.why(full), [(t.name, full)]),
    ]
    return conv(d, turns, tools, "tool missing")


SKILLS = [
    (single, 6),
    (natural, 2),
    (use_result, 2),
    (chain, 2),
    (pass_on, 0.8),
    (parallel, 0.5),
    (refuse, 2.5),
    (missing, 1),
]
