"""Arithmetic with worked steps: digit by digit, in the order in which a carry is known."""
from .conv import Conv, reply, user
from .words import join, plural

WORD = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}


def add_steps(a, b):
    """'47+85: 7+5=12 write 2 carry 1; 4+8+1=13. 132'"""
    x, y = str(a)[::-1], str(b)[::-1]
    steps, carry = [], 0
    n = max(len(x), len(y))
    for i in range(n):
        p, q = int(x[i]) if i < len(x) else 0, int(y[i]) if i < len(y) else 0
        s = p + q + carry
        text = f"{p}+{q}{f'+{carry}' if carry else ''}={s}"
        if i < n - 1:
            carry = s // 10
            text += f" write {s % 10}" + (f" carry {carry}" if carry else "")
        steps.append(text)
    return f"{a}+{b}: {'; '.join(steps)}. {a + b}"


def sub_steps(a, b):
    if a < b:
        return f"{a}<{b}, so -({b}-{a}). {sub_steps(b, a)}, so {a - b}"
    x, y = str(a)[::-1], str(b)[::-1]
    steps, borrow = [], 0
    for i in range(len(x)):
        p, q = int(x[i]), int(y[i]) if i < len(y) else 0
        tail = "-1" if borrow else ""
        v = p - q - borrow
        borrow = 1 if v < 0 else 0
        steps.append(
            f"{p}-{q}{tail}<0 borrow {p + 10}-{q}{tail}={v + 10}" if borrow else f"{p}-{q}{tail}={v}"
        )
    return f"{a}-{b}: {'; '.join(steps)}. {a - b}"


def mul_digit(a, d):
    """Product with one digit: '47*6: 7*6=42 write 2 carry 4; 4*6+4=28. 282'"""
    x = str(a)[::-1]
    steps, carry = [], 0
    for i, ch in enumerate(x):
        s = int(ch) * d + carry
        text = f"{ch}*{d}{f'+{carry}' if carry else ''}={s}"
        if i < len(x) - 1:
            carry = s // 10
            text += f" write {s % 10}" + (f" carry {carry}" if carry else "")
        steps.append(text)
    return f"{a}*{d}: {'; '.join(steps)}. {a * d}"


def mul_steps(a, b):
    if b < 10:
        return mul_digit(a, b)
    if a < 10:
        return f"{a}*{b}={b}*{a}. " + mul_digit(b, a)
    lines, parts = [], []
    for i, ch in enumerate(str(b)[::-1]):
        if ch == "0":
            continue
        lines.append(
            mul_digit(a, int(ch)) + ("" if i == 0 else f", so {a}*{ch}{'0' * i}={a * int(ch)}{'0' * i}")
        )
        parts.append(a * int(ch) * 10**i)
    total = parts[0] if parts else 0
    for p in parts[1:]:
        lines.append(add_steps(total, p))
        total += p
    return "\n".join(lines) if lines else f"{a}*0=0"


def div_steps(a, b):
    """Long division, the digits of a brought down one after another."""
    rest, lines, quotient = 0, [], ""
    for ch in str(a):
        rest = rest * 10 + int(ch)
        q = rest // b
        if q == 0:
            lines.append(f"{rest}<{b} write 0")
        else:
            lines.append(f"{b}*{q}={b * q} {rest}-{b * q}={rest - b * q} write {q}")
        quotient += str(q)
        rest -= q * b
    return f"{a}/{b}: {'; '.join(lines)}. {quotient} is {int(quotient)}, rest {rest}"


def work(op, a, b):
    """(worked steps, result text)"""
    if op == "+":
        return add_steps(a, b), str(a + b)
    if op == "-":
        return sub_steps(a, b), str(a - b)
    if op == "*":
        return mul_steps(a, b), str(a * b)
    q, r = divmod(a, b)
    return div_steps(a, b), f"{q} remainder {r}" if r else str(q)


def operands(d, op, hi=999):
    def make():
        a, b = (d.number(hi), d.number(hi)) if d.chance(0.5) else (d.int(0, hi), d.int(0, hi))
        return (a, max(b, 1)) if op == "/" else (a, b)

    return d.fresh(make, op)


def ask(d, op, a, b):
    sign = {"*": d.pick(("*", "x", "×")), "/": d.pick(("/", "÷"))}.get(op, op)
    e = d.pick((f"{a} {sign} {b}", f"{a}{sign}{b}", f"{a} {WORD[op]} {b}"))
    more = {
        "+": (f"Add {a} and {b}.", f"What is the sum of {a} and {b}?", f"Sum {a} and {b}"),
        "-": (f"Subtract {b} from {a}.", f"What is the difference {a} - {b}?", f"Take {b} away from {a}."),
        "*": (f"Multiply {a} by {b}.", f"What is the product of {a} and {b}?", f"{a} multiplied by {b}?"),
        "/": (f"Divide {a} by {b}.", f"How often does {b} go into {a}?", f"{a} divided by {b}?"),
    }[op]
    return d.say(
        "What is {e}?",
        "{e} = ?",
        "{e}",
        "Calculate {e}.",
        "How much is {e}?",
        "Compute {e}",
        "what's {e}",
        "Can you work out {e}?",
        "Tell me {e}.",
        "Please compute {e}.",
        "I need the result of {e}.",
        "{more}",
        "{more}",
        "{e}=",
        "Solve {e}",
        "Quick question: {e}?",
    ).format(e=e, more=d.pick(more))


def final(op, a, b, result):
    return f"{a} {'×' if op == '*' else '÷' if op == '/' else op} {b} = {result}"


def arithmetic(d):
    op = d.pick("++--**/" if not d.test else "+-*")
    a, b = operands(d, op, 99999 if op in "+-" and d.chance(0.15) and not d.test else 999)
    steps, result = work(op, a, b)
    think = d.chance(0.75) or d.test
    text = final(op, a, b, result)
    if think:
        answer = reply(text, steps)
    else:
        easy = op in "+-" and max(a, b) < 100 or op == "*" and max(a, b) <= 12
        answer = reply(text if easy else f"{steps}\n{text}")
    return Conv(
        [user(ask(d, op, a, b)), answer], "arithmetic", thinking=think, check={"op": op, "result": result}
    )


def story(d):
    """A word problem of one or two steps."""
    who, what = d.first(), d.noun()
    kind = d.int(0, 4)
    a, b = operands(d, "+-*/+"[kind], 200)
    a, b, c = max(a, 2), max(b, 2), d.number(200) + 2
    p = plural(what)
    if kind == 0:
        q = d.say(
            "{w} has {a} {p} and gets {b} more. How many {p} does {w} have now?",
            "{w} owns {a} {p}. Then {w} buys {b} more. How many is that?",
            "There are {a} {p} in a box and {w} adds {b}. How many are in the box?",
            "{w} found {a} {p} on one day and {b} on the next. How many in total?",
        ).format(w=who, a=a, b=b, p=p)
        steps, r = work("+", a, b)
        unit = p
    elif kind == 1:
        a, b = max(a, b), min(a, b)
        q = d.say(
            "{w} has {a} {p} and gives away {b}. How many are left?",
            "Of {a} {p}, {b} are sold. How many remain?",
            "{w} had {a} {p} and lost {b}. How many does {w} still have?",
        ).format(w=who, a=a, b=b, p=p)
        steps, r = work("-", a, b)
        unit = p
    elif kind == 2:
        b = d.int(2, 12)
        q = d.say(
            "{w} buys {b} boxes with {a} {p} each. How many {p} is that?",
            "Each of {b} bags holds {a} {p}. How many {p} are there?",
            "{b} people have {a} {p} each. How many {p} together?",
        ).format(w=who, a=a, b=b, p=p)
        steps, r = work("*", a, b)
        unit = p
    elif kind == 3:
        b = d.int(2, 9)
        a = b * d.int(2, 60)
        q = d.say(
            "{w} shares {a} {p} equally among {b} friends. How many does each get?",
            "{a} {p} are packed into {b} boxes, the same number in each. How many {p} are in a box?",
        ).format(w=who, a=a, b=b, p=p)
        steps, r = work("/", a, b)
        unit = p
    else:
        c = min(c, a + b)
        q = d.say(
            "{w} has {a} {p}, gets {b} more and then gives away {c}. How many are left?",
            "A shop has {a} {p}. {b} are delivered and {c} are sold. How many remain?",
        ).format(w=who, a=a, b=b, c=c, p=p)
        s1, r1 = work("+", a, b)
        s2, r = work("-", int(r1), c)
        steps, unit = s1 + "\n" + s2, p
    text = f"{r} {unit if r != '1' else what}."
    if d.chance(0.7):
        return Conv([user(q), reply(text, steps)], "story", thinking=True)
    return Conv([user(q), reply(f"{steps}\n{text}")], "story")


UNITS = [
    ("kilometers", "meters", 1000),
    ("meters", "centimeters", 100),
    ("kilograms", "grams", 1000),
    ("hours", "minutes", 60),
    ("minutes", "seconds", 60),
    ("days", "hours", 24),
    ("weeks", "days", 7),
    ("liters", "milliliters", 1000),
    ("years", "months", 12),
    ("feet", "inches", 12),
    ("dozens", "pieces", 12),
    ("centimeters", "millimeters", 10),
    ("tons", "kilograms", 1000),
    ("euros", "cents", 100),
]


def convert(d):
    if d.chance(0.2):
        c = d.int(-9, 20) * 5
        q = d.say(
            "Convert {c} degrees Celsius to Fahrenheit.",
            "What is {c} °C in Fahrenheit?",
            "How many degrees Fahrenheit are {c} degrees Celsius?",
        ).format(c=c)
        f = c * 9 // 5 + 32
        steps, text = f"{c}*9/5={c * 9 // 5}; {c * 9 // 5}+32={f}", f"{c} °C is {f} °F."
    else:
        big, small, k = d.pick(UNITS)
        n = d.number(200) + 1
        if d.chance(0.6):
            q = d.say(
                "How many {s} are {n} {b}?",
                "Convert {n} {b} to {s}.",
                "{n} {b} in {s}?",
                "What are {n} {b} in {s}?",
                "Express {n} {b} in {s}.",
            ).format(n=n, s=small, b=big)
            steps = f"1 {big[:-1]} = {k} {small}. " + (
                f"{n}*{k}={n * k}" if k % 10 == 0 and k != 60 else mul_steps(n, k)
            )
            text = f"{n} {big} are {n * k} {small}."
        else:
            q = d.say("How many {b} are {m} {s}?", "Convert {m} {s} to {b}.", "{m} {s} in {b}?").format(
                m=n * k, s=small, b=big
            )
            steps = f"1 {big[:-1]} = {k} {small}. {n * k}/{k}={n}"
            text = f"{n * k} {small} are {n} {big}."
    if d.chance(0.6):
        return Conv([user(q), reply(text, steps)], "convert", thinking=True)
    return Conv([user(q), reply(f"{steps}. {text}" if d.chance(0.5) else text)], "convert")


def compare(d):
    a, b = d.number(9999), d.number(9999)
    q = d.say(
        "Which is larger, {a} or {b}?",
        "Is {a} larger than {b}?",
        "Which number is smaller: {a} or {b}?",
        "Compare {a} and {b}.",
    ).format(a=a, b=b)
    rel = "is larger than" if a > b else "is smaller than" if a < b else "is equal to"
    if q.startswith("Which is larger"):
        text = f"{max(a, b)} is larger." if a != b else "They are equal."
    elif q.startswith("Which number"):
        text = f"{min(a, b)} is smaller." if a != b else "They are equal."
    elif q.startswith("Is"):
        text = f"{'Yes' if a > b else 'No'}, {a} {rel} {b}."
    else:
        text = f"{a} {rel} {b}."
    why = f"{a} has {len(str(a))} digits, {b} has {len(str(b))}. {a} {'>' if a > b else '<' if a < b else '='} {b}"
    think = d.chance(0.5)
    return Conv([user(q), reply(text, why if think else "")], "compare", thinking=think)


def total(d):
    """Sum of a list, by running totals."""
    xs = [d.number(99) for _ in range(d.int(3, 6))]
    q = d.say("Add up {x}.", "What is the sum of {x}?", "Sum these numbers: {x}", "Total of {x}?").format(
        x=join(xs)
    )
    steps, s = [], xs[0]
    for x in xs[1:]:
        steps.append(f"{s}+{x}={s + x}")
        s += x
    think = d.chance(0.7)
    text = f"The sum is {s}."
    return Conv(
        [user(q), reply(text, "; ".join(steps)) if think else reply("; ".join(steps) + f". {text}")],
        "total",
        thinking=think,
    )


SKILLS = [(arithmetic, 5), (story, 1.2), (convert, 1), (compare, 0.5), (total, 0.7)]
