"""Long texts with something to find in them: facts, records, log lines, functions, 100 to 16,000 tokens
back."""
from .chat import SKILLS as CHAT
from .code import Task, fenced, fill, usual_locals
from .conv import Conv, reply, user
from .text import SKILLS as TEXT
from .words import ADJ, ANIMAL, COLOR, JOB, PLACE, THING, WEEKDAY, article, join, plural

CONTEXT_WEIGHT = 0.02


def filler(d):
    """A sentence that says nothing asked for."""
    r = d.r.choice
    k = d.int(0, 7)
    if k == 0:
        return f"The {r(ADJ)} {r(ANIMAL)} sleeps in the {r(PLACE)}."
    if k == 1:
        return f"On {r(WEEKDAY)} the {r(JOB)} sold {d.int(2, 99)} {plural(r(THING))}."
    if k == 2:
        return f"Nobody knows why the {r(THING)} is {r(COLOR)}."
    if k == 3:
        return f"{d.first()} walked from the {r(PLACE)} to the {r(PLACE)}."
    if k == 4:
        return f"It was {article(r(ADJ))} day in {d.city()}."
    if k == 5:
        return f"{d.first()} and {d.first()} looked for {article(r(ADJ))} {r(THING)}."
    if k == 6:
        return f"The {r(JOB)} keeps {d.int(2, 30)} {plural(r(ANIMAL))} near the {r(PLACE)}."
    return f"{article(r(ADJ)).capitalize()} {r(ANIMAL)} and {article(r(COLOR))} {r(THING)} were seen."


def size(d, longest):
    """Tokens of the haystack, every length on a log scale equally likely."""
    lo, hi = 100, longest
    return int(lo * (hi / lo) ** d.r.random())


def needle(d):
    """(sentence, question, short answer)"""
    who = d.pick((d.full_name, lambda: d.thing(), lambda: d.pseudo()))()
    what, make = d.pick(
        (
            ("access code", d.code),
            ("secret word", d.pseudo),
            ("magic number", lambda: str(d.int(100, 99999))),
            ("room number", lambda: str(d.int(1, 999))),
            ("hiding place", lambda: d.word(PLACE)),
            ("favorite color", lambda: d.word(COLOR)),
            ("home town", d.city),
            ("password", d.pseudo),
            ("phone number", lambda: f"{d.int(100, 999)}-{d.int(1000, 9999)}"),
            ("birthday", d.date),
        )
    )
    v = make()
    s = d.pick(("The {w} of {p} is {v}.", "Remember: the {w} of {p} is {v}.", "{p} has the {w} {v}.")).format(
        w=what, p=who, v=v
    )
    q = d.say(
        "What is the {w} of {p}?",
        "Which {w} does {p} have?",
        "Find the {w} of {p}.",
        "Tell me the {w} of {p}.",
        "Look up the {w} of {p} in the text.",
        "The text gives the {w} of {p}. What is it?",
    ).format(w=what, p=who)
    return s, q, f"The {what} of {who} is {v}."


def facts(d, longest, tokens=None):
    n = tokens or size(d, longest)
    lines = [filler(d) for _ in range(max(2, n // 11))]
    many = max(1, min(16, n // 120)) if tokens is None else 4
    asked = []
    for _ in range(d.int(1, many)):
        s, q, a = needle(d)
        lines.insert(d.int(0, len(lines)), s)
        asked.append((q, a))
    sep = d.pick((" ", " ", "\n"))
    text = sep.join(lines)
    picked = d.r.sample(asked, min(len(asked), 1 if tokens else d.int(1, 6)))
    q, a = picked[0]
    intro = d.say(
        "Read this text.", "Here is a text.", "Text:", "Remember the following.", "Below is a report."
    )
    first = d.pick((f"{intro}\n{text}\n{q}", f"{q}\n{text}", f"{intro}\n{text}\n\nQuestion: {q}"))
    turns = [user(first), reply(a)]
    for q, a in picked[1:]:
        turns += [user(q), reply(a)]
    return Conv(turns, "recall facts", thinking=d.chance(0.3), context_weight=CONTEXT_WEIGHT)


def records(d, longest):
    """A table or log, asked for one row."""
    n = max(3, min(size(d, longest) // 22, 700))
    style = d.int(0, 2)
    rows = {}
    while len(rows) < n:
        key = (
            d.pick((d.code, d.full_name, lambda: str(d.int(1000, 99999))))()
            if style != 1
            else f"L{d.int(1, 99999)}"
        )
        rows[key] = (
            (d.city(), d.int(1, 9999), d.word(COLOR))
            if style != 1
            else (d.thing(), d.int(1, 9999), d.first())
        )
    if style == 0:
        text = "\n".join(f"{k} | {a} | {b} | {c}" for k, (a, b, c) in rows.items())
        head, names = "id | city | amount | color\n", ("city", "amount", "color")
    elif style == 1:
        text = "\n".join(f"{k}: {c} moved {article(a)} to shelf {b}" for k, (a, b, c) in rows.items())
        head, names = "", ("item", "shelf", "person")
    else:
        text = "\n".join(f"{k}: city={a}, amount={b}, color={c}" for k, (a, b, c) in rows.items())
        head, names = "", ("city", "amount", "color")
    lines = dict(zip(rows, text.split("\n")))
    turns = []
    for _ in range(d.int(1, 4)):
        key, i = d.pick(list(rows)), d.int(0, 2)
        q = d.say(
            "What is the {n} of {k}?",
            "Look at {k}: what is the {n}?",
            "Which {n} does {k} have?",
            "Find the {n} in the row {k}.",
            "{n} of {k}?",
        ).format(n=names[i], k=key)
        a = f"The {names[i]} of {key} is {rows[key][i]}."
        if d.chance(0.2):
            q, a = (
                d.say(
                    "Show the line of {k}.",
                    "Copy the line that begins with {k}.",
                    "Give me the whole entry {k}.",
                ).format(k=key),
                lines[key],
            )
        turns += [user(q if turns else f"{head}{text}\n\n{q}"), reply(a)]
    return Conv(turns, "recall records", thinking=d.chance(0.3), context_weight=CONTEXT_WEIGHT)


def functions(d, longest):
    """A source file; one of its functions is asked for."""
    lang = d.pick(("py", "py", "c", "js"))
    n = max(2, min(size(d, longest) // 70, 220))
    tasks = {}
    while len(tasks) < n:
        t = Task(d, lang)
        usual_locals(t)
        tasks[t.name] = t
    doc = d.chance(0.5)
    text = "\n\n".join(t.source(doc) for t in tasks.values())
    turns = []
    for _ in range(d.int(1, 3)):
        t = d.pick(list(tasks.values()))
        if d.chance(0.7):
            q = d.say(
                "Show the function {n}.",
                "Copy the function {n}.",
                "Give me the source of {n}.",
                "How is {n} written?",
                "Print {n} exactly.",
            ).format(n=t.name)
            a = fenced(lang, t.source(doc))
        else:
            q = d.say("What does {n} do?", "Explain the function {n}.", "Describe {n}.").format(n=t.name)
            a = f"The function {t.name} {fill(t.fam.desc[0], t.names)}."
        turns += [user(q if turns else f"{fenced(lang, text)}\n{q}"), reply(a)]
    return Conv(turns, "recall functions", thinking=d.chance(0.3), context_weight=CONTEXT_WEIGHT)


def long_chat(d, longest):
    """Something said many turns ago."""
    n = size(d, min(longest, 6000))
    v, p = d.code(), d.thing()
    turns = [user(f"The number of the {p} is {v}."), reply("I will remember it.")]
    used = 40
    makers = [f for f, _ in CHAT[:4]] + [f for f, _ in TEXT]
    while used < n:
        c = d.pick(makers)(d)
        for t in c.turns:
            t.reasoning = ""
        turns += c.turns
        used += 12 * len(c.turns) + sum(len(t.text) // 4 for t in c.turns)
    q = d.say(
        "What is the number of the {p}?",
        "Which number has the {p}?",
        "I told you a number for the {p}. Which?",
    ).format(p=p)
    return Conv(
        turns + [user(q), reply(f"The number of the {p} is {v}.")],
        "recall chat",
        thinking=False,
        context_weight=0.05,
    )


def order(d, longest):
    """Which of several things was named first or last."""
    xs = [d.thing() for _ in range(d.int(3, 6))]
    lines = [filler(d) for _ in range(size(d, min(longest, 3000)) // 11 + len(xs))]
    spots = sorted(d.r.sample(range(len(lines) + 1), len(xs)))
    for s, x in reversed(list(zip(spots, xs))):
        lines.insert(s, f"Note {article(x)}.")
    q = d.say("List the notes in order.", "Which things should be noted?", "What did the notes say?")
    return Conv(
        [user(" ".join(lines) + "\n" + q), reply(f"The notes were: {join(xs)}.")],
        "recall order",
        thinking=d.chance(0.3),
        context_weight=CONTEXT_WEIGHT,
    )


def skills(longest):
    return [
        ((lambda d, f=f: f(d, longest)), w)
        for f, w in ((facts, 4), (records, 2), (functions, 1.5), (long_chat, 1.2), (order, 0.6))
    ]
