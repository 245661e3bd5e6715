"""Text to JSON: fields named by a described shape, flat, nested and in arrays."""
import json

from .conv import Conv, reply, user
from .words import ADJ, COLOR, JOB, PLACE, SUBJECT, THING, WEEKDAY, article, join

# field, JSON type, value, sentence parts; {n} is the person or thing the record is about
FIELDS = [
    ("name", "string", lambda d: d.full_name(), ("{n} is called {v}", "the name is {v}", "name {v}")),
    (
        "age",
        "integer",
        lambda d: d.int(1, 99),
        ("{n} is {v} years old", "aged {v}", "{v} years of age", "{n} turned {v}"),
    ),
    (
        "city",
        "string",
        lambda d: d.city(),
        ("{n} lives in {v}", "from {v}", "in the city {v}", "{n} comes from {v}", "based in {v}"),
    ),
    (
        "job",
        "string",
        lambda d: d.word(JOB),
        ("{n} works as {av}", "{av} by trade", "{n} is {av}", "employed as {av}"),
    ),
    ("email", "string", lambda d: d.email(), ("the email is {v}", "reachable at {v}", "mail {v}")),
    (
        "phone",
        "string",
        lambda d: f"{d.int(100, 999)}-{d.int(1000, 9999)}",
        ("the phone number is {v}", "phone {v}", "call {v}"),
    ),
    ("color", "string", lambda d: d.word(COLOR), ("the color is {v}", "{n} likes {v}", "colored {v}")),
    (
        "price",
        "number",
        lambda d: d.price(),
        ("it costs {v} euros", "for {v} euros", "it costs {v}", "{v} euros", "sold for {v} euros"),
    ),
    ("quantity", "integer", lambda d: d.int(1, 500), ("the quantity is {v}", "{v} pieces", "{v} of them")),
    (
        "weight",
        "number",
        lambda d: round(d.r.uniform(0.1, 90), 1),
        ("the weight is {v} kg", "it weighs {v} kg", "{v} kg heavy"),
    ),
    ("date", "string", lambda d: d.pick((d.iso_date, d.date))(), ("the date is {v}", "on {v}", "dated {v}")),
    ("time", "string", lambda d: d.time(), ("the time is {v}", "at {v}", "it starts at {v}")),
    (
        "place",
        "string",
        lambda d: d.word(PLACE),
        ("the place is the {v}", "at the {v}", "it takes place in the {v}"),
    ),
    ("day", "string", lambda d: d.pick(WEEKDAY), ("on {v}", "the day is {v}", "every {v}")),
    ("product", "string", lambda d: d.thing(), ("the product is {av}", "the item is {av}", "it is {av}")),
    ("code", "string", lambda d: d.code(), ("the code is {v}", "with the code {v}", "code {v}")),
    ("id", "integer", lambda d: d.int(1, 99999), ("the id is {v}", "with id {v}", "number {v}")),
    ("active", "boolean", lambda d: d.chance(0.5), ("it is {yes}active", "{n} is {yes}active")),
    ("paid", "boolean", lambda d: d.chance(0.5), ("it is {yes}paid", "it was {yes}paid")),
    (
        "country",
        "string",
        lambda d: d.pseudo().capitalize() + "land",
        ("the country is {v}", "in the country {v}"),
    ),
    ("subject", "string", lambda d: d.word(SUBJECT), ("the subject is {v}", "about {v}", "{n} studies {v}")),
    (
        "company",
        "string",
        lambda d: d.pseudo().capitalize() + d.pick((" Ltd", " Inc", "")),
        ("the company is {v}", "{n} works at {v}", "from the company {v}"),
    ),
    ("score", "integer", lambda d: d.int(0, 100), ("the score is {v}", "with {v} points", "{n} scored {v}")),
    ("version", "string", lambda d: f"{d.int(0, 9)}.{d.int(0, 30)}", ("the version is {v}", "version {v}")),
    (
        "status",
        "string",
        lambda d: d.pick(("open", "closed", "pending", "shipped", "done")),
        ("the status is {v}", "it is {v} now", "status {v}"),
    ),
]


def odd_field(d):
    """A field with a name that no list has."""
    name = d.pick(
        (
            lambda: f"{d.word(ADJ)}_{d.word(THING)}",
            d.pseudo,
            lambda: f"{d.word(THING)}_{d.pick(('code', 'name', 'size', 'count'))}",
            lambda: d.word(THING),
        )
    )()
    kind = d.pick(("string", "string", "integer", "number", "boolean"))
    make = {
        "string": lambda d: d.pick((d.pseudo, d.noun, d.first, d.city, d.code, d.thing))(),
        "integer": lambda d: d.int(0, 9999),
        "number": lambda d: d.price(),
        "boolean": lambda d: d.chance(0.5),
    }[kind]
    label = name.replace("_", " ")
    say = (f"the {label} is {{v}}", f"{label} {{v}}", f"with {label} {{v}}", f"{label}: {{v}}")
    return name, kind, make, say


def shown(v):
    return "true" if v is True else "false" if v is False else "nothing" if v is None else str(v)


# ways to hand over any field; which of them a test draws depends on the label too
PLAIN = (
    "the {label} is {v}",
    "{label} {v}",
    "{label}: {v}",
    "with the {label} {v}",
    "its {label} is {v}",
    "{v} is the {label}",
    "{label} = {v}",
    "as {label} {v}",
    "{label} is {v}",
    "the {label}: {v}",
    "{v} as the {label}",
    "{v} as {label}",
    "put {v} as the {label}",
    "use {v} for the {label}",
    "{v} for the {label}",
    "{label} equals {v}",
    "the {label} should be {v}",
    "set {label} to {v}",
    "{label} -> {v}",
    "its {label}: {v}",
    "with {label} of {v}",
    "with a {label} of {v}",
    "whose {label} is {v}",
    "{label} ({v})",
    "the {label} was {v}",
    "where the {label} is {v}",
    "and the {label} is {v}",
    "has the {label} {v}",
    "having {label} {v}",
    "there the {label} reads {v}",
)


class Part(str):
    """A piece of the text; `fixed`: it begins with a value, whose spelling must stay."""

    fixed = False


def sentence(d, field, v, who):
    label = field[0].replace("_", " ")
    if d.chance(0.45):
        p = d.say(*field[3])
    else:
        p = d.say(*(t.replace("{label}", label) for t in PLAIN))
    part = Part(p.format(n=who, v=shown(v), av=article(shown(v)), yes="" if v else "not "))
    part.fixed = p.startswith("{")
    return part


def capital(part):
    return part if getattr(part, "fixed", False) else part[0].upper() + part[1:]


def choose(d, n, taken=()):
    out, names = [], set(taken)
    while len(out) < n:
        f = d.pick(FIELDS) if d.chance(0.65) else odd_field(d)
        if f[0] not in names:
            names.add(f[0])
            out.append(f)
    return out


def prose(d, parts):
    style = d.int(0, 3)
    if style == 0:
        return " ".join(capital(p) + "." for p in parts)
    if style == 1:
        return ", ".join([capital(parts[0]), *parts[1:]]) + "."
    if style == 2:
        return join([capital(parts[0]), *parts[1:]]) + "."
    return "; ".join(parts) + "."


def record(d, fields, who):
    """(object, text parts); now and then a field is not mentioned and is null."""
    obj, parts = {}, []
    for f in fields:
        v = None if d.chance(0.06) and len(fields) > 1 else f[2](d)
        obj[f[0]] = v
        if v is not None:
            parts.append(sentence(d, f, v, who))
    return obj, parts


def shape(fields):
    return {f[0]: f[1] for f in fields}


def schema(sh):
    """The described shape as a JSON Schema."""
    if isinstance(sh, list):
        return {"type": "array", "items": schema(sh[0])}
    if isinstance(sh, dict):
        return {"type": "object", "properties": {k: schema(v) for k, v in sh.items()}, "required": list(sh)}
    return {"type": sh}


def describe(d, sh):
    if not any(isinstance(v, (dict, list)) for v in sh.values()) and d.chance(0.6):
        if d.chance(0.5):
            return d.say(
                "Return JSON with the fields {f}.",
                "Give me a JSON object with {f}.",
                "Extract {f} as JSON.",
                "JSON with {f}, please.",
                "Answer with a JSON object that has {f}.",
                "Write {f} as a JSON object.",
            ).format(f=join(sh))
        return d.say(
            "Return JSON with the fields {f}.",
            "Extract as JSON: {f}.",
            "Give a JSON object with {f}.",
            "Turn this into JSON with {f}.",
        ).format(f=", ".join(f"{k} ({v})" for k, v in sh.items()))
    if d.chance(0.25):
        return d.say(
            "Answer with JSON for this schema: {s}",
            "Follow this JSON schema: {s}",
            "Return JSON that fits the schema {s}",
        ).format(s=json.dumps(schema(sh)))
    return d.say(
        "Return JSON of this shape: {s}",
        "Extract the data as JSON like {s}",
        "Fill in {s}",
        "Use this JSON format: {s}",
        "Answer only with JSON of the form {s}",
        "Convert to JSON: {s}",
    ).format(s=json.dumps(sh))


def build(d):
    """(shape, object, text)"""
    x = d.r.random()
    who = d.first()
    if x < 0.5:
        fields = choose(d, d.int(1, 6))
        obj, parts = record(d, fields, who)
        if d.chance(0.3):
            d.r.shuffle(parts)
        noise = [f"{d.first()} saw {article(d.thing())}", "that is all"]
        if not any(f[0] in ("day", "date") for f in fields):  # else it would be an answer too
            noise.append(f"it was {d.pick(WEEKDAY)}")
        if d.chance(0.2):
            parts.insert(d.int(0, len(parts)), d.pick(noise))
        return shape(fields), obj, prose(d, parts or ["nothing is known"])
    if x < 0.65:
        fields = choose(d, d.int(1, 4))
        key = d.pick(("address", "owner", "contact", "details", "customer", d.pseudo()))
        if key in shape(fields):
            key += "_data"
        inner = choose(d, d.int(1, 4), shape(fields))
        obj, parts = record(d, fields, who)
        sub, more = record(d, inner, f"the {key}")
        text = f"{prose(d, parts) if parts else ''} The {key}: {prose(d, more or ['unknown'])}".strip()
        return {**shape(fields), key: shape(inner)}, {**obj, key: sub}, text
    if x < 0.85:
        fields = choose(d, d.int(1, 3))
        key = d.pick(("items", "people", "orders", "entries", "rows", "results"))
        rows, texts = [], []
        for i in range(d.int(1, 4)):
            obj, parts = record(d, fields, "it")
            rows.append(obj)
            texts.append(f"{i + 1}. {', '.join(parts) or 'nothing'}.")
        return {key: [shape(fields)]}, {key: rows}, " ".join(texts)
    fields = choose(d, d.int(0, 3))
    key = d.pick(("tags", "names", "colors", "cities", "values"))
    obj, parts = record(d, fields, who) if fields else ({}, [])
    make = {
        "names": d.first,
        "colors": lambda: d.word(COLOR),
        "cities": d.city,
        "values": lambda: d.int(0, 999),
    }.get(key, d.noun)
    xs = [make() for _ in range(d.int(1, 5))]
    parts.insert(d.int(0, len(parts)), f"the {key} are {join(xs)}")
    sh, ob = {}, {}
    for k in list(obj) + [key]:
        sh[k] = shape(fields).get(k, ["integer" if key == "values" else "string"])
        ob[k] = obj.get(k, xs)
    return sh, ob, prose(d, parts)


def extract(d):
    sh, obj, text = build(d)
    ask = describe(d, sh)
    answer = json.dumps(obj, ensure_ascii=False)
    if d.chance(0.2):
        return Conv([user(text), reply(answer)], "json", system=ask, thinking=d.chance(0.3))
    q = d.pick((f"{ask}\n\n{text}", f"{text}\n\n{ask}", f"{ask} {text}", f"{ask}\nText: {text}"))
    think = d.chance(0.3)
    return Conv([user(q), reply(answer)], "json", thinking=think, check={"object": obj})


def to_table(d):
    """JSON back to text."""
    fields = choose(d, d.int(1, 4))
    obj = {f[0]: f[2](d) for f in fields}
    k = d.pick(list(obj))
    q = d.say(
        "What is the {k} in this JSON: {j}",
        "Read {k} from {j}",
        "Which value has {k}? {j}",
        "{j}\nWhat is {k}?",
    ).format(k=k, j=json.dumps(obj, ensure_ascii=False))
    return Conv([user(q), reply(shown(obj[k]))], "json read", thinking=d.chance(0.3))


SKILLS = [(extract, 6), (to_table, 1)]
