"""Text to JSON: fields named by a described shape, flat, nested and in arrays."""
import json

from .conv import Conv, reply, user
from .fields import FIELDS, LEADS, LOOKS, STRANGE
from .words import ADJ, COLOR, THING, WEEKDAY, article, held_out, join, ways


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
) + ways(
    """{v} is given as the {label} | the {label} given is {v} | note {v} as the {label} | take {v} as {label} |
    the {label} happens to be {v} | we have {v} as {label} | the {label} reads {v} | under {label} it says {v} |
    {v} goes into {label} | its {label} was {v} | the {label} must be {v} | enter {v} for {label} |
    the field {label} holds {v} | {label} set to {v} | the {label} they gave is {v} | {v} counts as the {label} |
    {label} is given as {v} | for {label} take {v} | with {v} as {label} | of {label} {v} |
    write {v} under {label} | the value of {label} is {v} | the {label} turned out to be {v} | {label} of {v} |
    fill {label} with {v} | {label} being {v}"""
)


class Part(str):
    """A piece of the text; `fixed`: it begins with a value, whose spelling must stay."""

    fixed = False


def strange(d):
    """A way to hand over that no list has, so that the value has to tell what it is; none that the test uses."""
    while True:
        w = d.word(LEADS) if d.chance(0.6) else d.pseudo()
        p = d.pick(STRANGE).replace("{w}", w)
        if not held_out("say", p, one_in=8):
            return p


def sentence(d, field, v, who, alone):
    """`alone`: no other field of the record has values that look like this one's."""
    label = field[0].replace("_", " ")
    if alone and not d.test and d.chance(0.1):
        p = strange(d)
    elif d.chance(0.45):
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
    looks = [LOOKS.get(f[0], f[0]) for f in fields]
    for f, look in zip(fields, looks):
        v = None if d.chance(0.06) and len(fields) > 1 else f[2](d)
        obj[f[0]] = v
        if v is not None:
            parts.append(sentence(d, f, v, who, f in FIELDS and f[1] != "boolean" and looks.count(look) == 1))
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


ASK_NAMES = ways(
    """Return JSON with the fields {f}. | Give me a JSON object with {f}. | Extract {f} as JSON. |
    JSON with {f}, please. | Answer with a JSON object that has {f}. | Write {f} as a JSON object. |
    Pull out {f} as JSON. | I need {f} in JSON. | Find {f} and return JSON. | Put {f} into a JSON object. |
    Collect {f} in a JSON object. | Make JSON from this with {f}. | Please give {f} as JSON. |
    Only JSON, with the keys {f}. | Turn the text into JSON with {f}. | Read out {f} and answer in JSON. |
    Fields: {f}. Answer in JSON. | From the text, give {f} as a JSON object. | The JSON must have {f}. |
    Parse {f} into JSON. | Return {f}, in JSON. | Take {f} out of the data, as JSON. | Show {f} as JSON."""
)
ASK_TYPES = ways(
    """Return JSON with the fields {f}. | Extract as JSON: {f}. | Give a JSON object with {f}. |
    Turn this into JSON with {f}. | I need JSON with {f}. | Pull out as JSON: {f}. |
    Fields for the JSON object: {f}. | Build a JSON object out of {f}. | Answer in JSON with the keys {f}. |
    Make a JSON object with {f}. | Put the text into JSON: {f}. | Read these into JSON: {f}. | JSON, please: {f}. |
    The object has the fields {f}. | Collect as JSON: {f}. | Fill a JSON object with {f}. |
    Write JSON with {f} from the text. | Find {f} and answer in JSON. | Take the data out as JSON: {f}. |
    Return the data as JSON with {f}."""
)
ASK_SCHEMA = ways(
    """Answer with JSON for this schema: {s} | Follow this JSON schema: {s} | Return JSON that fits the schema {s} |
    Use the schema {s} | Extract the data by this schema: {s} | The answer must be valid for {s} |
    JSON schema: {s} | Turn the text into JSON that this schema allows: {s} | Write JSON according to {s} |
    Here is the schema of the answer: {s} | Read the text into this schema: {s} | Match this schema: {s} |
    Give the facts as JSON under the schema {s} | Your answer has the schema {s} | Obey this JSON schema: {s}"""
)
ASK_SHAPE = ways(
    """Return JSON of this shape: {s} | Extract the data as JSON like {s} | Fill in {s} | Use this JSON format: {s} |
    Answer only with JSON of the form {s} | Convert to JSON: {s} | Return the data in this form: {s} |
    Extract JSON like {s} | Give the information as JSON like {s} | Pull the facts into {s} | Complete {s} |
    The answer looks like {s} | Write the data as JSON of the form {s} | Make JSON like {s} |
    I need the facts in the shape {s} | Put the text into {s} | Format: {s} | Turn the data into JSON: {s} |
    Take the values out of the text: {s} | Shape of the JSON: {s} | Parse the text into {s} |
    Extract all values as {s} | Return an object such as {s} | Follow the pattern {s}"""
)


def describe(d, sh):
    if not any(isinstance(v, (dict, list)) for v in sh.values()) and d.chance(0.6):
        if d.chance(0.5):
            return d.say(*ASK_NAMES).format(f=join(sh))
        return d.say(*ASK_TYPES).format(f=", ".join(f"{k} ({v})" for k, v in sh.items()))
    if d.chance(0.25):
        return d.say(*ASK_SCHEMA).format(s=json.dumps(schema(sh)))
    return d.say(*ASK_SHAPE).format(s=json.dumps(sh))


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
        "{j}\nGive me {k}.",
        "{j} Which {k} is that?",
        "Tell me {k} of this object: {j}",
        "Look up {k} in {j}",
        "What does {k} hold in {j}?",
        "Get {k} out of {j}",
        "{k} of {j}?",
        "Take {k} from this JSON: {j}",
    ).format(k=k, j=json.dumps(obj, ensure_ascii=False))
    return Conv([user(q), reply(shown(obj[k]))], "json read", thinking=d.chance(0.3))


SKILLS = [(extract, 6), (to_table, 1)]
