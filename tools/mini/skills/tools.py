"""Tool use: choosing a tool, copying arguments with their types, not calling, using results, chains."""
import json

from .chat import PERSONA
from .conv import Conv, Turn, reply, user
from .words import ADJ, COLOR, MONTH, PLACE, SUBJECT, THING, WEEKDAY, article, held_out, join

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
ENUMS = [
    ("unit", ("celsius", "fahrenheit")),
    ("priority", ("low", "medium", "high")),
    ("format", ("json", "csv", "xml")),
    ("color", tuple(COLOR[:6])),
    ("size", ("small", "medium", "large")),
    ("order", ("ascending", "descending")),
    ("mode", ("fast", "safe", "dry")),
    ("status", ("open", "closed", "all")),
    ("day", tuple(WEEKDAY)),
    ("language", ("english", "german", "french", "spanish")),
    ("level", ("debug", "info", "error")),
    ("role", ("admin", "editor", "viewer")),
    ("period", ("day", "week", "month")),
]

# name, JSON type, what it says in the schema, value, phrases that hand it over
PARAMS = [
    ("city", "string", "Name of the city", lambda d: d.city(), ("in {v}", "for {v}", "for the city {v}")),
    ("location", "string", "Place or city", lambda d: d.city(), ("in {v}", "at {v}", "for {v}")),
    ("name", "string", "Name", lambda d: d.full_name(), ("with the name {v}", "called {v}", "named {v}")),
    (
        "title",
        "string",
        "Title",
        lambda d: d.thing(),
        ('with the title "{v}"', 'titled "{v}"', 'called "{v}"'),
    ),
    ("to", "string", "Receiver", lambda d: d.pick((d.first, d.email))(), ("to {v}", "for {v}")),
    (
        "email",
        "string",
        "Email address",
        lambda d: d.email(),
        ("with the email {v}", "using {v}", "and the address {v}"),
    ),
    (
        "path",
        "string",
        "Path of the file",
        lambda d: d.path(),
        ("at {v}", "with path {v}", "from {v}", "{v}"),
    ),
    (
        "query",
        "string",
        "What to look for",
        lambda d: d.thing(),
        ('for "{v}"', 'matching "{v}"', 'with the query "{v}"'),
    ),
    (
        "text",
        "string",
        "The text",
        lambda d: f"{d.pseudo()} {d.noun()} {d.pseudo()}",
        ('with the text "{v}"', 'saying "{v}"', ': "{v}"'),
    ),
    ("subject", "string", "Subject line", lambda d: d.thing(), ('with the subject "{v}"', 'about "{v}"')),
    ("date", "string", "Date as YYYY-MM-DD", lambda d: d.iso_date(), ("on {v}", "for {v}", "dated {v}")),
    ("time", "string", "Time as HH:MM", lambda d: d.time(), ("at {v}", "for {v} o'clock")),
    ("month", "string", "Month", lambda d: d.pick(MONTH), ("in {v}", "for {v}")),
    (
        "id",
        "integer",
        "Number of the entry",
        lambda d: d.int(1, 99999),
        ("with id {v}", "number {v}", "#{v}"),
    ),
    ("count", "integer", "How many", lambda d: d.int(1, 50), ("{v} times", "with count {v}")),
    (
        "limit",
        "integer",
        "Largest number of results",
        lambda d: d.int(1, 100),
        ("at most {v}", "with limit {v}", "limited to {v}"),
    ),
    ("days", "integer", "Number of days", lambda d: d.int(1, 30), ("for {v} days", "over {v} days")),
    ("minutes", "integer", "Minutes", lambda d: d.int(1, 240), ("for {v} minutes", "of {v} minutes")),
    ("quantity", "integer", "Quantity", lambda d: d.int(1, 99), ("with quantity {v}", "{v} pieces")),
    ("age", "integer", "Age in years", lambda d: d.int(1, 99), ("aged {v}", "with age {v}")),
    ("port", "integer", "Port number", lambda d: d.int(80, 65000), ("on port {v}", "with port {v}")),
    ("price", "number", "Price", lambda d: d.price(), ("for {v} euros", "with the price {v}", "at {v}")),
    ("amount", "number", "Amount", lambda d: d.price(), ("over {v}", "with amount {v}", "of {v}")),
    ("ratio", "number", "A ratio", lambda d: round(d.r.random(), 2), ("with ratio {v}", "at a ratio of {v}")),
    ("verbose", "boolean", "Print details", None, ("with details", "without details")),
    ("recursive", "boolean", "Descend into folders", None, ("recursively", "not recursively")),
    ("urgent", "boolean", "Whether it is urgent", None, ("urgently", "without urgency")),
    ("public", "boolean", "Visible to all", None, ("publicly", "privately")),
    (
        "tags",
        "array",
        "List of tags",
        lambda d: [d.pick((d.noun, d.pseudo))() for _ in range(d.int(1, 4))],
        ("with the tags {v}", "tagged {v}"),
    ),
    (
        "names",
        "array",
        "List of names",
        lambda d: [d.first() for _ in range(d.int(1, 4))],
        ("with {v}", "for {v}"),
    ),
]
GENERIC = (
    "with {n} {v}",
    "{n} {v}",
    "with {n} = {v}",
    "using {n} {v}",
    "where {n} is {v}",
    "and {n} {v}",
    "{n}: {v}",
    "set {n} to {v}",
    "with the {n} {v}",
    "the {n} is {v}",
    "use {v} as {n}",
    "with {v} as the {n}",
    "taking {v} for {n}",
    "{n}={v}",
    "the {n} should be {v}",
    "whose {n} is {v}",
    "with a {n} of {v}",
    "for the {n} {v}",
    "having the {n} {v}",
)
STYLES = (
    lambda v, n: f"{v}_{n}",
    lambda v, n: f"{v}_{n}",
    lambda v, n: v + "".join(p.capitalize() for p in n.split("_")),
    lambda v, n: f"{n}_{v}",
    lambda v, n: f"{v}-{n.replace('_', '-')}",
)


class Param:
    def __init__(self, d, taken):
        x = d.r.random()
        self.enum = None
        if x < 0.55:
            self.name, self.type, self.about, make, self.phrases = d.pick(PARAMS)
            self.make = make or (lambda d: d.chance(0.6))
        elif x < 0.7:
            self.name, self.enum = d.pick(ENUMS)
            self.type, self.about, self.phrases = "string", f"The {self.name}", GENERIC
            self.make = lambda d: d.pick(self.enum)
        else:
            base = d.pick(
                (
                    lambda: f"{d.word(ADJ)}_{d.word(THING)}",
                    lambda: f"{d.word(THING)}_{d.pick(('id', 'name', 'code', 'size'))}",
                    d.pseudo,
                    lambda: d.word(PLACE),
                    lambda: d.word(SUBJECT),
                    lambda: d.word(THING),
                )
            )()
            self.name, self.phrases = base, GENERIC
            self.type = d.pick(("string", "string", "integer", "number", "boolean", "array"))
            self.about = f"The {base.replace('_', ' ')}"
            self.make = {
                "string": lambda d: d.pick((d.pseudo, d.noun, d.code, d.thing, d.first))(),
                "integer": lambda d: d.int(0, 9999),
                "number": lambda d: d.price(),
                "boolean": lambda d: d.chance(0.5),
                "array": lambda d: [d.pick((d.noun, d.pseudo))() for _ in range(d.int(1, 3))],
            }[self.type]
        if self.name in taken:
            self.name = f"{self.name}_{d.pseudo()}"
            self.phrases = GENERIC
        self.plain = self.type == "boolean" and self.phrases is not GENERIC

    def schema(self, d):
        s = {"type": self.type}
        if self.type == "array":
            s["items"] = {"type": "string"}
        if self.enum:
            s["enum"] = list(self.enum)
        if d.chance(0.7):
            s["description"] = self.about
        return s

    def say(self, d, v):
        label = self.name.replace("_", " ")
        if self.plain:
            return self.phrases[0 if v else 1]
        shown = join(v) if isinstance(v, list) else str(v).lower() if isinstance(v, bool) else str(v)
        # a label that the tool's own phrases lack tells parameters of one kind apart
        phrases = GENERIC if d.chance(0.35) else self.phrases
        return d.say(*(p.replace("{n}", label) for p in phrases)).format(v=shown)


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


NATURAL = [
    (
        "get_weather",
        "Get the current weather of a city",
        {"city": "string"},
        lambda d: {"city": d.city()},
        (
            "What is the weather in {city}?",
            "How is the weather in {city}?",
            "What's the weather like in {city}?",
            "Is it raining in {city}?",
            "Weather in {city}?",
            "Tell me the weather in {city}.",
        ),
        lambda d, a: (
            {"temperature": d.int(-15, 38), "sky": d.pick(("sunny", "cloudy", "rainy", "windy", "clear"))},
            "In {city} it is {sky} at {temperature} degrees.",
        ),
    ),
    (
        "get_time",
        "Get the local time of a city",
        {"city": "string"},
        lambda d: {"city": d.city()},
        ("What time is it in {city}?", "Tell me the time in {city}.", "Current time in {city}?"),
        lambda d, a: ({"time": d.time()}, "In {city} it is {time}."),
    ),
    (
        "read_file",
        "Read a text file",
        {"path": "string"},
        lambda d: {"path": d.path()},
        (
            "What is in {path}?",
            "Read {path}.",
            "Show me the file {path}.",
            "Open {path} and tell me what it says.",
            "cat {path}",
        ),
        lambda d, a: ({"content": f"{d.thing()} {d.number(99)}"}, "The file {path} contains: {content}"),
    ),
    (
        "list_files",
        "List the files of a folder",
        {"path": "string"},
        lambda d: {"path": f"{d.noun()}/{d.pseudo()}"},
        (
            "Which files are in {path}?",
            "List the files in {path}.",
            "Show the content of the folder {path}.",
            "ls {path}",
        ),
        lambda d, a: ({"files": f"{d.noun()}.txt"}, "The folder {path} has {files}."),
    ),
    (
        "write_file",
        "Write text to a file",
        {"path": "string", "text": "string"},
        lambda d: {"path": d.path(), "text": f"{d.pseudo()} {d.thing()}"},
        (
            'Write "{text}" to {path}.',
            'Save the text "{text}" in {path}.',
            'Put "{text}" into the file {path}.',
        ),
        lambda d, a: ({"bytes": d.int(5, 60)}, "I wrote {bytes} bytes to {path}."),
    ),
    (
        "run_command",
        "Run a shell command",
        {"command": "string"},
        lambda d: {
            "command": d.pick(
                (
                    "make test",
                    "git status",
                    f"ls {d.noun()}",
                    f"grep {d.pseudo()} {d.path()}",
                    f"cat {d.path()}",
                    "df -h",
                )
            )
        },
        (
            "Run {command}.",
            "Execute `{command}`.",
            "Please run the command {command}",
            "Run `{command}` in the shell.",
        ),
        lambda d, a: ({"exit": d.pick((0, 0, 1, 2))}, "The command ended with status {exit}."),
    ),
    (
        "search_web",
        "Search the web",
        {"query": "string"},
        lambda d: {"query": f"{d.thing()} {d.pseudo()}"},
        ("Search the web for {query}.", "Look up {query}.", "Find pages about {query}.", "Google {query}."),
        lambda d, a: (
            {"title": d.thing(), "url": f"https://{d.pseudo()}.org"},
            "The first result is {title} at {url}.",
        ),
    ),
    (
        "calculate",
        "Evaluate an arithmetic expression",
        {"expression": "string"},
        lambda d: {"expression": f"{d.number(9999)} {d.pick('+-*')} {d.number(9999)}"},
        (
            "What is {expression}?",
            "Calculate {expression}.",
            "Use the calculator: {expression}",
            "How much is {expression}?",
        ),
        lambda d, a: ({"value": eval(a["expression"])}, "{expression} = {value}"),
    ),
    (
        "send_email",
        "Send an email",
        {"to": "string", "subject": "string", "body": "string"},
        lambda d: {"to": d.email(), "subject": d.thing(), "body": f"{d.pseudo()} {d.pseudo()} {d.noun()}"},
        (
            'Send an email to {to} with the subject "{subject}" and the text "{body}".',
            'Email {to} about "{subject}": "{body}"',
            'Write a mail to {to}, subject "{subject}", saying "{body}".',
        ),
        lambda d, a: ({"status": "sent"}, "The email to {to} was sent."),
    ),
    (
        "set_timer",
        "Start a timer",
        {"minutes": "integer"},
        lambda d: {"minutes": d.int(1, 120)},
        (
            "Set a timer for {minutes} minutes.",
            "Wake me in {minutes} minutes.",
            "Timer: {minutes} minutes.",
            "Remind me in {minutes} minutes.",
        ),
        lambda d, a: ({"id": d.int(1, 999)}, "The timer {id} runs for {minutes} minutes."),
    ),
    (
        "translate",
        "Translate a text",
        {"text": "string", "language": "string"},
        lambda d: {
            "text": d.thing(),
            "language": d.pick(("German", "French", "Spanish", "Italian", "Turkish")),
        },
        (
            'Translate "{text}" into {language}.',
            'What is "{text}" in {language}?',
            'How do you say "{text}" in {language}?',
        ),
        lambda d, a: ({"translation": f"{d.pseudo()} {d.pseudo()}"}, 'In {language} it is "{translation}".'),
    ),
    (
        "create_event",
        "Create a calendar event",
        {"title": "string", "date": "string", "time": "string"},
        lambda d: {"title": d.thing(), "date": d.iso_date(), "time": d.time()},
        (
            'Put "{title}" into my calendar on {date} at {time}.',
            'Schedule "{title}" for {date}, {time}.',
            'Create an event "{title}" on {date} at {time}.',
        ),
        lambda d, a: ({"id": d.int(1, 9999)}, "The event has the number {id}."),
    ),
    (
        "book_table",
        "Book a table in a restaurant",
        {"restaurant": "string", "people": "integer", "time": "string"},
        lambda d: {"restaurant": d.thing().title(), "people": d.int(1, 12), "time": d.time()},
        (
            "Book a table for {people} at {restaurant} at {time}.",
            "Reserve a table in {restaurant} for {people} people at {time}.",
        ),
        lambda d, a: ({"code": d.code()}, "The table is booked, the code is {code}."),
    ),
    (
        "get_stock_price",
        "Get the price of a stock",
        {"symbol": "string"},
        lambda d: {"symbol": d.pseudo()[:4].upper()},
        ("What is the price of {symbol}?", "How much is {symbol} stock?", "Stock price of {symbol}?"),
        lambda d, a: ({"price": d.price()}, "{symbol} is at {price}."),
    ),
    (
        "turn_on",
        "Turn a device on",
        {"device": "string", "room": "string"},
        lambda d: {"device": d.word(THING), "room": d.word(PLACE)},
        (
            "Turn on the {device} in the {room}.",
            "Switch the {device} in the {room} on.",
            "{device} on in the {room}, please.",
        ),
        lambda d, a: ({"status": "on"}, "The {device} in the {room} is on."),
    ),
    (
        "grep_tree",
        "Search files for a pattern",
        {"pattern": "string", "max_hits": "integer"},
        lambda d: {"pattern": d.pseudo(), "max_hits": d.int(1, 99)},
        (
            "Find {pattern} in the files, at most {max_hits} hits.",
            "Search the code for {pattern}, limit {max_hits}.",
            "grep {pattern}, up to {max_hits} hits",
        ),
        lambda d, a: ({"file": d.path(), "line": d.int(1, 900)}, "I found it in {file}, line {line}."),
    ),
]


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


def chain(d):
    tools = toolbox(d, d.int(2, 6))
    todo = [d.pick(tools) for _ in range(d.int(2, min(4, 1 + len(tools))))]
    steps = [(t, t.arguments(d)) for t in todo]
    parts = [t.request(d, a, wrap=False) for t, a in steps]
    link = d.say(", then ", " and then ", "; after that ", ". Then ")
    turns = [
        user(
            d.say("First {t}.", "Please {t}.", "{T}.", "Do this in order: {t}.").format(
                t=link.join(parts), T=link.join(parts)[0].upper() + link.join(parts)[1:]
            )
        )
    ]
    said = []
    for i, (t, a) in enumerate(steps):
        text, s = result(d, t, a)
        said.append(s)
        why = f"Step {i + 1} of {len(steps)}. {t.why(a)}"
        turns += [reply("", why, [(t.name, a)]), Turn("tool", text)]
    turns.append(reply(" ".join(said), "All steps are done."))
    return conv(d, turns, tools, "tool chain")


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
    ask = d.say(
        "{x}, and {y} with the {k} from the result.",
        "{x}. Then {y} using the {k} you get.",
        "{x}; use the returned {k} to {y}.",
    ).format(x=a.request(d, args_a, False), y=f"{b.verb} the {b.noun.replace('_', ' ')}", k=key)
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


def parallel(d):
    """Two calls in one turn."""
    tools = toolbox(d)
    t = d.pick([x for x in tools if x.params] or tools)
    a, b = t.arguments(d), t.arguments(d)
    if not a or a == b or set(a) != set(b):
        return single(d)
    q = d.say("{x}, and also {y}.", "Do both: {x} and {y}.", "At the same time, {x} and {y}.").format(
        x=t.request(d, a, False), y=t.request(d, b, False)
    )
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
        user(d.say("{v}", "It is {v}.", "{v}, please.", "Take {v}.", "{n} {v}").format(v=said, n=label)),
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
