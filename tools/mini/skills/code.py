"""Writing, completing, explaining and repairing small functions in Python, C and JavaScript."""
import re

from .conv import Conv, raw, reply, user
from .families import FAMILIES
from .words import ADJ, THING

LANG = {"py": "Python", "c": "C", "js": "JavaScript"}
FENCE = {"py": "python", "c": "c", "js": "javascript"}
ARG_NAMES = {
    "L": "values numbers items data xs nums seq arr".split(),
    "S": "text s word line string name".split(),
    "I": "n x value num number m".split(),
}
SECOND = {"L": "others ys second more".split(), "I": "b y other k".split()}
LOCAL = {
    "i": "i k idx pos".split(),
    "x": "x v item e".split(),
    "s": "total result acc out_value count best".split(),
}


def fill(text, names):
    return re.sub(r"\$([a-z])", lambda m: str(names[m.group(1)]), text)


def camel(name):
    head, *tail = name.split("_")
    return head + "".join(t.capitalize() for t in tail)


def a_name(d, fam):
    """A function name: one of the family's words, often decorated, or made up. Test names are never trained
    on."""

    def make():
        w = d.pick(fam.words)
        x = d.r.random()
        if x < 0.35:
            return w
        if x < 0.55:
            return f"{w}_{d.pick(ADJ)}" if d.chance(0.5) else f"{d.pick(ADJ)}_{w}"
        if x < 0.75:
            return (
                f"{w}_{d.pick(THING)}"
                if d.chance(0.5)
                else f"{d.pick(('get', 'my', 'calc', 'do', 'compute'))}_{w}"
            )
        return f"{d.pseudo()}_{d.pseudo()}" if d.chance(0.5) else d.pseudo()

    return d.fresh(make, "function")


class Task:
    """One family with names and a constant drawn."""

    def __init__(self, d, lang=None, fam=None):
        fams = FAMILIES if lang is None else [f for f in FAMILIES if getattr(f, lang)]
        self.fam = fam or d.pick(fams)
        self.lang = lang or d.pick([x for x in LANG if getattr(self.fam, x)])
        self.name = a_name(d, self.fam)
        if self.lang == "js":
            self.name = camel(self.name)
        kinds = ["I" if x in "INPQ" else "S" if x == "R" else x for x in self.fam.args]
        names = {
            "k": d.int(2, 9)
            if self.fam.key in ("every_k", "first_k", "drop_k", "repeat_string")
            else d.int(2, 40)
        }
        names["a"] = d.pick(ARG_NAMES[kinds[0]])
        if len(kinds) > 1:
            names["b"] = d.pick([w for w in SECOND[kinds[1]] if w != names["a"]])
        taken = set(map(str, names.values())) | {"n"}
        for key, pool in LOCAL.items():
            names[key] = d.pick([w for w in pool if w not in taken])
            taken.add(names[key])
        if self.lang == "c" and kinds[0] == "L" and names["a"] == "n":
            names["a"] = "values"
        self.kinds, self.names = kinds, names
        self.desc = fill(d.pick(self.fam.desc), names)

    def signature(self):
        args = [self.names[x] for x in "ab"[: len(self.kinds)]]
        if self.lang == "py":
            return f"def {self.name}({', '.join(args)}):"
        if self.lang == "js":
            return f"function {self.name}({', '.join(args)}) {{"
        typed = [
            {"L": f"const int *{a}, int n", "S": f"const char *{a}", "I": f"int {a}"}[k]
            for a, k in zip(args, self.kinds)
        ]
        if self.fam.ret == "V":
            return f"void {self.name}(char *{args[0]})\n{{"
        return f"int {self.name}({', '.join(typed)})\n{{"

    def doc(self):
        text = self.desc[0].upper() + self.desc[1:] + "."
        return (
            f'    """{text}"""'
            if self.lang == "py"
            else f"/* {text} */"
            if self.lang == "c"
            else f"// {text}"
        )

    def body(self):
        return fill(getattr(self.fam, self.lang), self.names)

    def source(self, doc=False):
        end = "" if self.lang == "py" else "\n}"
        if not doc:
            return f"{self.signature()}\n{self.body()}{end}"
        if self.lang == "py":
            return f"{self.signature()}\n{self.doc()}\n{self.body()}"
        return f"{self.doc()}\n{self.signature()}\n{self.body()}{end}"

    def opening(self):
        """What a completion starts from."""
        return (
            f"{self.signature()}\n{self.doc()}" if self.lang == "py" else f"{self.doc()}\n{self.signature()}"
        )

    def tests(self, d, n=6):
        """[(arguments, result)] from the family's reference."""

        def arg(kind):
            if kind == "L":
                xs = [d.int(0, 4 if self.fam.key == "product" else 60) for _ in range(d.int(4, 8))]
                if d.chance(0.5) and self.fam.key != "product":
                    xs[d.int(0, len(xs) - 1)] = self.names["k"]
                return sorted(xs) if d.chance(0.2) else xs
            if kind in "SR":
                w = d.pseudo()
                return d.pick((w, w + w[::-1], f"{d.pseudo()} {d.pseudo()} {w}"))
            return {
                "I": lambda: d.int(-50, 2100),
                "N": lambda: d.int(0, 9),
                "P": lambda: d.int(1, 200),
                "Q": lambda: d.int(1, 6),
            }[kind]()

        out = []
        for _ in range(n):
            args = [arg(k) for k in self.fam.args]
            if self.fam.key == "last_digit":
                args = [abs(args[0])]
            if self.fam.args == "LL":
                args = [x[:4] for x in args]
            out.append((args, self.fam.ref(*args, self.names["k"])))
        return out

    def check(self, d):
        return {
            "lang": self.lang,
            "name": self.name,
            "kinds": self.kinds,
            "family": self.fam.key,
            "ret": self.fam.ret,
            "tests": self.tests(d),
        }


def fenced(lang, source):
    return f"```{FENCE[lang]}\n{source}\n```"


def write(d):
    t = Task(d)
    name = f"`{t.name}`" if d.chance(0.5) else t.name
    ask = d.say(
        "Write a {l} function {n} that {d}.",
        "Write a function {n} in {l} that {d}.",
        "In {l}, write {n}, which {d}.",
        "Please write a {l} function called {n} that {d}.",
        "I need a {l} function {n}: it {d}.",
        "Implement {n} in {l}. It {d}.",
        "Define a {l} function named {n} that {d}.",
        "{l}: function {n} that {d}",
        "Give me {l} code for a function {n} that {d}.",
        "Can you write a {l} function {n} that {d}?",
        "Code a {l} function {n} which {d}.",
        "Create a function {n} in {l}. The function {d}.",
    )
    arg = ""
    if d.chance(0.5):
        args = [t.names[x] for x in "ab"[: len(t.kinds)]]
        arg = (
            d.pick((f" The argument is {args[0]}.", f" Its parameter is called {args[0]}."))
            if len(args) == 1
            else d.pick(
                (
                    f" The arguments are {args[0]} and {args[1]}.",
                    f" Its parameters are called {args[0]} and {args[1]}.",
                )
            )
        )
    q = ask.format(l=LANG[t.lang], n=name, d=t.desc)
    if arg and q[-1] not in ".?":
        q += "."
    doc = d.chance(0.25)
    if doc:
        q += (
            d.pick((" Add a docstring.", " Document it.", " With a comment."))
            if q[-1] in ".?"
            else ", with a comment"
        )
    if not arg:  # without names in the question the answer uses the usual ones
        t.names["a"] = ARG_NAMES[t.kinds[0]][0]
        if len(t.kinds) > 1:
            t.names["b"] = SECOND[t.kinds[1]][0]
    usual_locals(t)
    why = f"{LANG[t.lang]} function {t.name}: it {t.desc}."
    return finish(d, t, q + arg, fenced(t.lang, t.source(doc)), why, "write")


def casual(d):
    """Asked for without a name, as people do; the function gets the family's usual name."""
    t = Task(d)
    t.name = t.fam.words[0] if t.lang != "js" else camel(t.fam.words[0])
    t.names["a"] = ARG_NAMES[t.kinds[0]][0]
    if len(t.kinds) > 1:
        t.names["b"] = SECOND[t.kinds[1]][0]
    usual_locals(t)
    t.desc = fill(d.pick(t.fam.desc), t.names)
    verb, _, rest = t.desc.partition(" ")
    base = {
        "checks": "check",
        "does": "do",
        "tells": "tell",
        "finds": "find",
        "squares": "square",
        "multiplies": "multiply",
        "splits": "split",
        "raises": "raise",
    }.get(verb, verb[:-1] if not verb.endswith("ies") else verb[:-3] + "y")
    langs = (LANG[t.lang], LANG[t.lang].lower())
    if t.lang == "py" and d.chance(0.3):
        q = d.say(
            "Write a function that {d}.",
            "Write code that {d}.",
            "I need a function that {d}.",
            "Please write a function that {d}.",
            "function that {d}",
            "Give me a function that {d}.",
        ).format(d=t.desc)
    else:
        q = d.say(
            "Write a {l} function that {d}.",
            "How do I {b} in {l}?",
            "{l} function that {d}",
            "{l} code that {d}",
            "How can I {b} in {l}?",
            "Write {l} code to {b}.",
            "Show me how to {b} in {l}.",
            "In {l}, how do you {b}?",
            "Give me a {l} function to {b}.",
            "I want to {b} in {l}.",
            "Write a function in {l} to {b}.",
            "Please write a {l} program to {b}.",
        ).format(l=d.pick(langs), d=t.desc, b=f"{base} {rest}")
    return finish(
        d, t, q, fenced(t.lang, t.source()), f"{LANG[t.lang]} function {t.name}: it {t.desc}.", "write"
    )


def usual_locals(t):
    """Local names are the answer's own choice: always the first that is free."""
    taken = {str(t.names[x]) for x in "ab" if x in t.names} | {"n"}
    for key, pool in LOCAL.items():
        t.names[key] = next(w for w in pool if w not in taken)
        taken.add(t.names[key])


def finish(d, t, q, answer, why, skill, think=0.35):
    thinking = d.chance(think)
    return Conv(
        [user(q), reply(answer, why if thinking else "")],
        f"code {skill}",
        thinking=thinking,
        check=t.check(d),
    )


def complete(d):
    t = Task(d)
    usual_locals(t)
    q = d.say(
        "Complete this function:",
        "Finish the function:",
        "Fill in the body:",
        "Complete the code:",
        "Please complete this {l} function:",
        "Write the missing body of this function:",
    ).format(l=LANG[t.lang])
    end = "" if t.lang == "py" else "\n}"
    return finish(
        d,
        t,
        f"{q}\n{fenced(t.lang, t.opening())}",
        fenced(t.lang, t.opening() + "\n" + t.body() + end),
        f"It {t.desc}.",
        "complete",
    )


def explain(d):
    t = Task(d)
    q = d.say(
        "What does this function do?",
        "Explain this code:",
        "What is this function for?",
        "Describe this {l} function:",
        "Explain what {n} does:",
    ).format(l=LANG[t.lang], n=t.name)
    t.desc = fill(t.fam.desc[0], t.names)
    return Conv(
        [user(f"{q}\n{fenced(t.lang, t.source())}"), reply(f"The function {t.name} {t.desc}.")],
        "code explain",
        thinking=d.chance(0.3),
    )


BUGS = [
    (" += ", " -= "),
    (" > ", " < "),
    (" < ", " > "),
    (" == 0", " == 1"),
    ("return -1", "return 1"),
    (" * ", " + "),
    (" + ", " - "),
    (" = 0", " = 1"),
    ("True", "False"),
    ("range(2, ", "range(3, "),
    (" === 0", " === 1"),
    (" != ", " == "),
    ("return 1;", "return 0;"),
    ("[-1]", "[0]"),
    (">= ", "<= "),
    ("max(", "min("),
    ("upper", "lower"),
    ("[::-1]", "[::1]"),
    (" - ", " + "),
    ("sorted(", "list("),
]


def repair(d):
    t = Task(d)
    lines = t.body().split("\n")
    spots = [(i, a, b) for i, line in enumerate(lines) for a, b in BUGS if a in line and "for (" not in line]
    if not spots:
        return write(d)
    i, a, b = d.pick(spots)
    broken = t.source().replace(
        "\n".join(lines), "\n".join(lines[:i] + [lines[i].replace(a, b, 1)] + lines[i + 1 :])
    )
    q = d.say(
        "This function is wrong. Fix it; it {d}:",
        "Find the bug. {n} {d}:",
        "Repair this code. It {d}:",
        "There is a bug in {n}, which {d}. Correct it:",
        "Fix the mistake in this function, which {d}:",
    ).format(d=t.desc, n=t.name)
    text = f"The line `{lines[i].strip().replace(a, b, 1)}` is wrong. It must be `{lines[i].strip()}`.\n"
    return finish(
        d, t, f"{q}\n{fenced(t.lang, broken)}", text + fenced(t.lang, t.source()), "", "repair", 0.3
    )


def call(d):
    """What a call returns."""
    t = Task(d, "py")
    args, res = t.tests(d, 1)[0]
    shown = ", ".join(map(repr, args))
    q = d.say("What does {n}({a}) return?", "Evaluate {n}({a}).", "What is the result of {n}({a})?").format(
        n=t.name, a=shown
    )
    if t.fam.key in (
        "collatz",
        "is_prime",
        "factorial",
        "fibonacci",
        "power",
        "product",
        "lcm",
        "sum_squares",
        "dot",
        "gcd",
    ):
        return explain(d)
    return Conv(
        [user(f"{fenced('py', t.source())}\n{q}"), reply(repr(res), f"It {t.desc}.")],
        "code call",
        thinking=True,
    )


OTHER = "Rust Go Java Ruby Haskell Perl Lua Swift Kotlin Fortran COBOL Scala PHP Pascal Lisp Prolog Bash SQL R Julia".split()


def cannot(d):
    """A language, or a function in a language, that it was never shown."""
    t = Task(d)
    missing = [x for x in LANG if not getattr(t.fam, x) and t.fam.ret != "V" and not t.fam.key.endswith("_c")]
    if missing and d.chance(0.5):
        lang = LANG[d.pick(missing)]
        if lang == "C" and t.fam.key in ("reverse_string", "is_palindrome", "string_length"):
            return casual(d)
        a = f"I do not know how to write that in {lang}."
    else:
        lang, a = d.pick(OTHER), "I can only write Python, C and JavaScript."
    q = d.say(
        "Write a {l} function that {d}.",
        "In {l}, write {n}, which {d}.",
        "{l} code that {d}",
        "Write a {l} function {n} that {d}.",
        "Write a function in {l} that {d}.",
        "I need a {l} function {n}: it {d}.",
    ).format(l=lang, d=t.desc, n=t.name)
    return Conv([user(q), reply(a)], "code cannot", thinking=d.chance(0.35))


def tests(d):
    t = Task(d, "py")
    cases = t.tests(d, 2)
    body = "\n".join(f"assert {t.name}({', '.join(map(repr, a))}) == {r!r}" for a, r in cases)
    src = "\n\n".join((t.source(True), body))
    return raw(src + "\n", "code raw", 0.5)


def file(d):
    """A source file of several functions, outside the chat format."""
    lang = d.pick(list(LANG))
    parts = []
    for _ in range(d.int(2, 6)):
        t = Task(d, lang)
        usual_locals(t)
        parts.append(t.source(True))
    return raw("\n\n".join(parts) + "\n", "code raw", 0.6)


SKILLS = [
    (write, 5),
    (casual, 2),
    (complete, 2),
    (explain, 1.5),
    (repair, 1.5),
    (call, 0.5),
    (cannot, 0.5),
    (tests, 0.3),
    (file, 0.7),
]
