"""Transforming strings, sorting and counting."""
from .conv import Conv, reply, user
from .words import ANIMAL, FIRST, FOOD, ORDINAL, THING


PLAIN = """lagoon model token server hello world window python friend letter number answer question computer
keyboard cache expert router memory prompt engine banana strawberry mississippi water house summer winter
morning evening language school people little because example system message reverse string program laguna
draft speed test data""".split()


def done(d, skill, question, answer, steps="", think=0.6, direct=True):
    """A one-question conversation; without thinking hard answers show their steps when `direct` is False."""
    if d.chance(think):
        return Conv([user(question), reply(answer, steps)], skill, thinking=True)
    return Conv([user(question), reply(answer if direct or not steps else f"{steps}\n{answer}")], skill)


def some_word(d):
    return d.pick((d.noun, d.pseudo, d.noun, d.pseudo, lambda: d.first().lower(), lambda: d.word(PLAIN)))()


def letters(w):
    return " ".join(w)


def transform(d):
    w = some_word(d)
    kind = d.int(0, 11)
    if kind == 0:
        q = d.say(
            "Reverse the word {w}.",
            "Spell {w} backwards.",
            "What is {w} backwards?",
            "Write {w} in reverse.",
            'Reverse "{w}"',
        ).format(w=w)
        return done(d, "reverse", q, w[::-1], f"{letters(w)} -> {letters(w[::-1])}", 0.8, False)
    if kind == 1:
        s = d.pick((w, f"{w} {some_word(d)}", d.thing()))
        q = d.say(
            "Write {w} in capital letters.",
            "Uppercase {w}",
            "Make this uppercase: {w}",
            "{w} in upper case, please",
            "Convert {w} to upper case.",
        ).format(w=s)
        return done(d, "upper", q, s.upper(), think=0.3)
    if kind == 2:
        s = d.pick((w.upper(), f"{w.upper()} {some_word(d).upper()}", d.full_name()))
        q = d.say(
            "Write {w} in lower case.",
            "Lowercase {w}",
            "Make this lowercase: {w}",
            "Convert {w} to lower case.",
        ).format(w=s)
        return done(d, "lower", q, s.lower(), think=0.3)
    if kind == 3:
        k = d.int(1, min(5, len(w)))
        q = d.say(
            "What is the {o} letter of {w}?",
            "Which letter is {o} in {w}?",
            "Give me the {o} letter of {w}.",
            "{o} letter of {w}?",
        ).format(o=ORDINAL[k - 1], w=w)
        return done(d, "letter", q, w[k - 1], ", ".join(f"{i + 1} {c}" for i, c in enumerate(w)))
    if kind == 4:
        q = d.say(
            "What is the last letter of {w}?", "Which letter does {w} end with?", "Last letter of {w}?"
        ).format(w=w)
        return done(d, "letter", q, w[-1], letters(w))
    if kind == 5:
        q = d.say(
            "How many letters does {w} have?",
            "How long is the word {w}?",
            "Count the letters in {w}.",
            "Number of letters in {w}?",
        ).format(w=w)
        return done(
            d,
            "length",
            q,
            f"{w} has {len(w)} letters.",
            ", ".join(f"{c} {i + 1}" for i, c in enumerate(w)),
            0.8,
            False,
        )
    if kind == 6:
        c = d.pick(w) if d.chance(0.85) else d.pick("aeiorst")
        n = w.count(c)
        q = d.say(
            "How many times does the letter {c} occur in {w}?",
            "Count the letter {c} in {w}.",
            "How many {c} are in {w}?",
            "How often is {c} in {w}?",
        ).format(c=c, w=w)
        seen, marks = 0, []
        for x in w:
            seen += x == c
            marks.append(f"{x} {seen}")
        return done(d, "count letter", q, f"{n}", ", ".join(marks), 0.8, False)
    if kind == 7:
        n = d.int(2, 6)
        q = d.say("Repeat the word {w} {n} times.", "Write {w} {n} times.", "Say {w} {n} times.").format(
            w=w, n=n
        )
        return done(d, "repeat", q, " ".join([w] * n), think=0.3)
    if kind == 8:
        ws = [some_word(d) for _ in range(d.int(2, 5))]
        name, sep = d.pick(
            (
                ("a comma", ","),
                ("a dash", "-"),
                ("a slash", "/"),
                ("an underscore", "_"),
                ("a plus", "+"),
                ("a colon", ":"),
            )
        )
        q = d.say(
            "Join these words with {s}: {w}",
            "Put {s} between the words {w}",
            "Combine {w} into one string with {s} between them.",
        ).format(s=name, w=" ".join(ws))
        return done(d, "join", q, sep.join(ws), think=0.3)
    if kind == 9:
        ws = [some_word(d) for _ in range(d.int(2, 5))]
        q = d.say(
            "What is the acronym of {w}?",
            "Take the first letter of each word: {w}",
            "Build an acronym from {w}.",
        ).format(w=" ".join(ws))
        return done(d, "acronym", q, "".join(x[0] for x in ws).upper(), ", ".join(f"{x} {x[0]}" for x in ws))
    if kind == 10:
        s = " ".join(some_word(d) for _ in range(d.int(2, 5)))
        q = d.say("Write in title case: {s}", "Capitalize each word: {s}", "Title case for {s}").format(s=s)
        return done(d, "title", q, s.title(), think=0.3)
    p = d.pseudo()[:4]
    w = d.pick((w, p + p[::-1], p + p[-2::-1]))
    q = d.say(
        "Is {w} a palindrome?", "Does {w} read the same backwards?", "Check if {w} is a palindrome."
    ).format(w=w)
    same = w == w[::-1]
    text = f"Yes, {w} is a palindrome." if same else f"No, backwards it is {w[::-1]}."
    return done(d, "palindrome", q, text, f"{letters(w)} -> {letters(w[::-1])}", 0.8, False)


def echo(d):
    """Copying text exactly."""
    s = d.pick(
        (
            d.pseudo(),
            f"{d.thing()} {d.number(999)}",
            d.code(),
            d.full_name(),
            d.email(),
            d.path(),
            f"{d.pseudo()} {d.pseudo()} {d.pseudo()}",
            str(d.number(10**9)),
            f"The {d.thing()} is {d.pseudo()}.",
        )
    )
    q = d.say(
        "Repeat exactly: {s}",
        "Say {s}",
        "Repeat after me: {s}",
        "Write this and nothing else: {s}",
        "Echo {s}",
        "Copy this text: {s}",
        "Please output {s}",
    ).format(s=s)
    return done(d, "echo", q, s, think=0.3)


def sort(d):
    n = d.int(3, 8)
    if d.chance(0.5):
        xs = [d.number(999) for _ in range(n)]
        shown, down = ", ".join(map(str, xs)), d.chance(0.4)
        order = sorted(xs, reverse=down)
        q = d.say(
            "Sort these numbers {o}: {x}",
            "Put {x} in {a} order.",
            "Order the numbers {x}, {b} first.",
            "Sort {x} {o}.",
            "Arrange {x} {o}.",
        ).format(
            x=shown,
            o="from largest to smallest" if down else "from smallest to largest",
            a="descending" if down else "ascending",
            b="largest" if down else "smallest",
        )
        steps = f"{'largest' if down else 'smallest'} first: " + "; ".join(
            f"{v}, left {' '.join(map(str, rest))}" if rest else f"{v}" for v, rest in picks(xs, order)
        )
        return done(d, "sort", q, ", ".join(map(str, order)), steps, 0.7)
    xs = d.words(d.pick((ANIMAL, FOOD, THING, FIRST)), n)
    order = sorted(xs)
    q = d.say(
        "Sort these words alphabetically: {x}",
        "Put these words in alphabetical order: {x}",
        "Alphabetize {x}",
        "Sort {x} from A to Z.",
        "Order alphabetically: {x}",
    ).format(x=", ".join(xs))
    steps = "; ".join(f"{w}, left {' '.join(rest)}" if rest else w for w, rest in picks(xs, order))
    return done(d, "sort", q, ", ".join(order), steps, 0.7)


def picks(xs, order):
    left = list(xs)
    for v in order:
        left.remove(v)
        yield v, list(left)


def extremes(d):
    xs = [d.number(999) for _ in range(d.int(3, 8))]
    big = d.chance(0.5)
    q = d.say(
        "What is the {e} of {x}?",
        "Which of these is the {e}: {x}",
        "Find the {e} number in {x}.",
        "{x}: which is {e}?",
    ).format(e="largest" if big else "smallest", x=", ".join(map(str, xs)))
    best, run = xs[0], [str(xs[0])]
    for x in xs[1:]:
        best = max(best, x) if big else min(best, x)
        run.append(f"{x} -> {best}")
    return done(d, "extreme", q, f"{best}", "; ".join(run), 0.6)


def count(d):
    if d.chance(0.5):
        xs = [d.noun() for _ in range(d.int(2, 9))]
        q = d.say(
            "How many items are in this list: {x}?",
            "Count the items: {x}",
            "How many things do I name: {x}?",
            "{x}. How many are these?",
        ).format(x=", ".join(xs))
        return done(
            d, "count", q, f"{len(xs)}", ", ".join(f"{i + 1} {x}" for i, x in enumerate(xs)), 0.7, False
        )
    kinds = d.words(d.pick((ANIMAL, FOOD, THING)), d.int(2, 3))
    xs = [d.pick(kinds) for _ in range(d.int(4, 10))]
    w = d.pick(kinds)
    q = d.say(
        "How often does {w} occur in this list: {x}?", "Count {w} in: {x}", "How many times is {w} in {x}?"
    ).format(w=w, x=", ".join(xs))
    seen, marks = 0, []
    for x in xs:
        seen += x == w
        marks.append(f"{x} {seen}")
    return done(d, "count", q, f"{seen}", ", ".join(marks), 0.7, False)


def filter_list(d):
    kind = d.int(0, 3)
    if kind == 0:
        xs = [d.number(99) for _ in range(d.int(4, 9))]
        even = d.chance(0.5)
        keep = [x for x in xs if (x % 2 == 0) == even]
        q = d.say(
            "Which of these numbers are {e}: {x}?",
            "Keep only the {e} numbers: {x}",
            "List the {e} numbers in {x}.",
        ).format(e="even" if even else "odd", x=", ".join(map(str, xs)))
        steps = ", ".join(f"{x} {'even' if x % 2 == 0 else 'odd'}" for x in xs)
    elif kind == 1:
        xs = [d.number(99) for _ in range(d.int(4, 9))]
        k = d.int(10, 80)
        keep = [x for x in xs if x > k]
        q = d.say(
            "Which of these are greater than {k}: {x}?",
            "Keep the numbers above {k}: {x}",
            "List all numbers larger than {k} in {x}.",
        ).format(k=k, x=", ".join(map(str, xs)))
        steps = ", ".join(f"{x} {'yes' if x > k else 'no'}" for x in xs)
    elif kind == 2:
        xs = [some_word(d) for _ in range(d.int(4, 8))]
        c = d.pick(xs)[0]
        keep = [x for x in xs if x[0] == c]
        q = d.say(
            "Which of these words start with {c}: {x}?",
            "Keep only the words that begin with {c}: {x}",
            "Words with first letter {c} in {x}?",
        ).format(c=c, x=", ".join(xs))
        steps = ", ".join(f"{x} {x[0]}" for x in xs)
    else:
        xs = [d.noun() for _ in range(d.int(2, 3))]
        xs = [d.pick(xs) for _ in range(d.int(4, 8))]
        keep = list(dict.fromkeys(xs))
        q = d.say("Remove the duplicates: {x}", "List each item once: {x}", "Unique items of {x}?").format(
            x=", ".join(xs)
        )
        steps = ""
    return done(d, "filter", q, ", ".join(map(str, keep)) if keep else "none", steps, 0.6)


def position(d):
    xs = [d.noun() for _ in range(d.int(3, 8))]
    k = d.int(1, len(xs))
    q = d.say(
        "What is the {o} item of: {x}?", "Which word is {o} in this list: {x}", "Name the {o} of {x}."
    ).format(o=ORDINAL[k - 1], x=", ".join(xs))
    return done(d, "position", q, xs[k - 1], ", ".join(f"{i + 1} {x}" for i, x in enumerate(xs)))


def who_what(d):
    """Facts given in the question, one of them asked for, from either side."""
    names = list(dict.fromkeys(d.first() for _ in range(d.int(2, 6))))
    verb, ask, make = d.pick(
        (
            ("lives in", "Where does {w} live?", d.city),
            ("likes", "What does {w} like?", d.noun),
            ("works in", "Where does {w} work?", d.city),
            ("owns a", "What does {w} own?", d.thing),
            ("has the number", "Which number has {w}?", lambda: str(d.int(5, 90))),
        )
    )
    facts = [(p, make()) for p in names]
    who, what = d.pick(facts)
    told = " ".join(f"{p} {verb} {v}." for p, v in facts)
    if d.chance(0.2) and [v for _, v in facts].count(what) == 1:
        q, short = f"Who {verb} {what}?", who
    else:
        q, short = ask.format(w=who), f"a {what}" if verb == "owns a" else what
    return done(d, "read", f"{told} {q}", short if d.chance(0.7) else f"{who} {verb} {what}.", think=0.3)


SKILLS = [
    (transform, 5),
    (echo, 1.5),
    (sort, 2),
    (extremes, 0.8),
    (count, 1),
    (filter_list, 1),
    (position, 0.5),
    (who_what, 1),
]
