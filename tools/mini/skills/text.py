"""Transforming strings, sorting and counting."""
from .conv import Conv, reply, user
from .words import ANIMAL, FIRST, FOOD, ORDINAL, THING, ways


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
            *ways(
                """Reverse the word {w}. | Spell {w} backwards. | What is {w} backwards? |
                Write {w} in reverse. | Reverse "{w}" | Turn {w} around. | Write {w} backwards. |
                {w} backwards, please. | Give me {w} in reverse order. | Read {w} from the end. |
                How is {w} spelled backwards? | Flip the word {w}. | Say {w} backwards. | Reverse {w}. |
                Spell {w} from back to front."""
            )
        ).format(w=w)
        return done(d, "reverse", q, w[::-1], f"{letters(w)} -> {letters(w[::-1])}", 0.8, False)
    if kind == 1:
        s = d.pick((w, f"{w} {some_word(d)}", d.thing()))
        q = d.say(
            *ways(
                """Write {w} in capital letters. | Uppercase {w} | Make this uppercase: {w} |
                {w} in upper case, please | Convert {w} to upper case. | Write {w} in capitals. |
                {w} in capital letters, please. | Capitals for {w}. | Put {w} into upper case. |
                Change {w} to capital letters. | Turn {w} into upper case. | Give me {w} in upper case. |
                Write {w} in upper case. | Make {w} all capitals. | Uppercase this: {w} |
                Spell {w} with capital letters only."""
            )
        ).format(w=s)
        return done(d, "upper", q, s.upper(), think=0.3)
    if kind == 2:
        s = d.pick((w.upper(), f"{w.upper()} {some_word(d).upper()}", d.full_name()))
        q = d.say(
            *ways(
                """Write {w} in lower case. | Lowercase {w} | Make this lowercase: {w} |
                Convert {w} to lower case. | Write {w} in small letters. | {w} in lower case, please. |
                Put {w} into lower case. | Change {w} to small letters. | Turn {w} into lower case. |
                Give me {w} in lower case. | Make {w} all small. | Lowercase this: {w} |
                Spell {w} with small letters only. | {w} in small letters, please. |
                Small letters for {w}. | {w} without capitals, please. |
                Write {w} without capital letters. | No capitals: {w} | Bring {w} to lower case. |
                Print {w} in lower case."""
            )
        ).format(w=s)
        return done(d, "lower", q, s.lower(), think=0.3)
    if kind == 3:
        k = d.int(1, min(5, len(w)))
        q = d.say(
            *ways(
                """What is the {o} letter of {w}? | Which letter is {o} in {w}? |
                Give me the {o} letter of {w}. | {o} letter of {w}? | Tell me the {o} letter of {w}. |
                What letter is {o} in {w}? | The {o} letter in {w}? | Find the {o} letter of {w}. |
                In {w}, which letter comes {o}? | Which is the {o} letter of {w}? |
                Name the {o} letter of {w}. | {w}: what is its {o} letter? | Pick the {o} letter out of {w}."""
            )
        ).format(o=ORDINAL[k - 1], w=w)
        return done(d, "letter", q, w[k - 1], ", ".join(f"{i + 1} {c}" for i, c in enumerate(w)))
    if kind == 4:
        q = d.say(
            *ways(
                """What is the last letter of {w}? | Which letter does {w} end with? | Last letter of {w}? |
                Tell me the last letter of {w}. | Which is the last letter of {w}? |
                What letter does {w} end in? | With which letter does {w} end? |
                Give me the last letter of {w}. | {w}: last letter? | The final letter of {w}? |
                What is the final letter of {w}? | Name the last letter of {w}. |
                On which letter does {w} end?"""
            )
        ).format(w=w)
        return done(d, "letter", q, w[-1], letters(w))
    if kind == 5:
        q = d.say(
            *ways(
                """How many letters does {w} have? | How long is the word {w}? | Count the letters in {w}. |
                Number of letters in {w}? | How many letters are in {w}? | {w} has how many letters? |
                Count letters: {w} | What is the length of {w}? | Tell me how many letters {w} has. |
                How many letters are there in {w}? | Length of {w}? | Of how many letters is {w} made? |
                How long is {w}? | Count how many letters {w} has. |
                What length has {w}? | How many characters does {w} have? |
                Number the letters of {w}. | Say how many letters {w} has. | Letter count of {w}? |
                Letters in {w}? | Tell me the length of {w}. | How many letters make up {w}? |
                {w}: how many letters? | Give me the number of letters of {w}. |
                With how many letters is {w} written?"""
            )
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
            *ways(
                """How many times does the letter {c} occur in {w}? | Count the letter {c} in {w}. |
                How many {c} are in {w}? | How often is {c} in {w}? | How many times is {c} in {w}? |
                How often does {c} occur in {w}? | Number of {c} in {w}? | Count how often {c} is in {w}. |
                In {w}, how many {c} are there? | How many letters {c} does {w} have? |
                How often do you see {c} in {w}? | Count {c} in the word {w}. |
                Tell me how many {c} the word {w} has."""
            )
        ).format(c=c, w=w)
        seen, marks = 0, []
        for x in w:
            seen += x == c
            marks.append(f"{x} {seen}")
        return done(d, "count letter", q, f"{n}", ", ".join(marks), 0.8, False)
    if kind == 7:
        n = d.int(2, 6)
        q = d.say(
            *ways(
                """Repeat the word {w} {n} times. | Write {w} {n} times. | Say {w} {n} times. |
                Say the word {w} {n} times. | {n} times {w}, please. | Write the word {w} {n} times. |
                {w}, {n} times. | Repeat {w} {n} times. | Give me {w} {n} times. | Print {w} {n} times. |
                I want to read {w} {n} times. | Output {w} {n} times. | {n} times the word {w}."""
            )
        ).format(w=w, n=n)
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
            *ways(
                """Join these words with {s}: {w} | Put {s} between the words {w} |
                Combine {w} into one string with {s} between them. | Join with {s}: {w} |
                Write {w} with {s} between the words. | Connect the words {w} by {s}. |
                Make one string of {w} with {s} between. | Link these words by {s}: {w} |
                Glue {w} together with {s}. | Use {s} to join {w}. | {w}: join them with {s}. |
                Combine with {s}: {w} | Separate {w} by {s}."""
            )
        ).format(s=name, w=" ".join(ws))
        return done(d, "join", q, sep.join(ws), think=0.3)
    if kind == 9:
        ws = [some_word(d) for _ in range(d.int(2, 5))]
        q = d.say(
            *ways(
                """What is the acronym of {w}? | Take the first letter of each word: {w} |
                Build an acronym from {w}. | Make an acronym of {w}. | Acronym of {w}? |
                First letters of {w}? | What do the first letters of {w} give? |
                Give me the acronym of {w}. | Form an acronym: {w} | The initials of {w}? |
                Write the first letters of {w}. | Which acronym does {w} have? | Shorten {w} to an acronym."""
            )
        ).format(w=" ".join(ws))
        return done(d, "acronym", q, "".join(x[0] for x in ws).upper(), ", ".join(f"{x} {x[0]}" for x in ws))
    if kind == 10:
        s = " ".join(some_word(d) for _ in range(d.int(2, 5)))
        q = d.say(
            *ways(
                """Write in title case: {s} | Capitalize each word: {s} | Title case for {s} |
                {s} in title case, please. | Give each word a capital letter: {s} |
                Make it title case: {s} | Begin each word with a capital letter: {s} |
                Write {s} in title case. | Turn {s} into title case. | Title case: {s} |
                Put {s} into title case. | Each word of {s} with a capital, please. |
                Change to title case: {s}"""
            )
        ).format(s=s)
        return done(d, "title", q, s.title(), think=0.3)
    p = d.pseudo()[:4]
    w = d.pick((w, p + p[::-1], p + p[-2::-1]))
    q = d.say(
        *ways(
            """Is {w} a palindrome? | Does {w} read the same backwards? | Check if {w} is a palindrome. |
            Is the word {w} a palindrome? | Can {w} be read backwards? | {w}: palindrome or not? |
            Tell me if {w} is a palindrome. | Do I get {w} when I reverse {w}? |
            Is {w} the same from behind? | Does {w} stay the same backwards? |
            Test {w}: is it a palindrome? | Would you call {w} a palindrome? | Palindrome: {w}?"""
        )
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
        *ways(
            """Repeat exactly: {s} | Say {s} | Repeat after me: {s} | Write this and nothing else: {s} |
            Echo {s} | Copy this text: {s} | Please output {s} | Print {s} | Just say {s} |
            Give me back {s} | Output exactly {s} | Repeat: {s} | Type {s} | Return this text: {s} |
            Write {s} | Say exactly this: {s} | Answer with {s} | Now write {s} | Respond with {s}"""
        )
    ).format(s=s)
    return done(d, "echo", q, s, think=0.3)


def sort(d):
    n = d.int(3, 8)
    if d.chance(0.5):
        xs = [d.number(999) for _ in range(n)]
        shown, down = ", ".join(map(str, xs)), d.chance(0.4)
        order = sorted(xs, reverse=down)
        q = d.say(
            *ways(
                """Sort these numbers {o}: {x} | Put {x} in {a} order. | Order the numbers {x}, {b} first. |
                Sort {x} {o}. | Arrange {x} {o}. | Sort {o}: {x} | Give me {x} in {a} order. |
                Numbers {x}: sort them {o}. | Order {x} {o}. | Line up {x}, {b} first. |
                Bring {x} into {a} order. | {x} sorted {o}, please. | Write {x} in {a} order. |
                List {x}, {b} first. | Rank {x} {o}. | In {a} order, please: {x}"""
            )
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
        *ways(
            """Sort these words alphabetically: {x} | Put these words in alphabetical order: {x} |
            Alphabetize {x} | Sort {x} from A to Z. | Order alphabetically: {x} | Sort alphabetically: {x} |
            Give me {x} in alphabetical order. | Bring {x} into alphabetical order. | Sort the words {x}. |
            {x} in alphabetical order, please. | Arrange alphabetically: {x} | List {x} by the alphabet. |
            Sort by letter: {x} | From A to Z, please: {x} | Put {x} in the order of a dictionary. |
            Order the words {x}."""
        )
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
        *ways(
            """What is the {e} of {x}? | Which of these is the {e}: {x} | Find the {e} number in {x}. |
            {x}: which is {e}? | Which number is the {e}: {x} | Tell me the {e} of {x}. | The {e} of {x}? |
            Give me the {e} number of {x}. | Among {x}, which is the {e}? | Find the {e} of {x}. |
            What number is the {e} in {x}? | Pick the {e} number: {x} | Name the {e} among {x}. |
            Which is the {e} one in {x}?"""
        )
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
            *ways(
                """How many items are in this list: {x}? | Count the items: {x} |
                How many things do I name: {x}? | {x}. How many are these? |
                How many words are these: {x}? | Count these: {x} | How long is this list: {x}? |
                Number of items in {x}? | How many entries has {x}? |
                Tell me how many items these are: {x} | {x}: how many items? | Count the entries of {x}. |
                How many do you count in {x}? | What is the number of items in {x}?"""
            )
        ).format(x=", ".join(xs))
        return done(
            d, "count", q, f"{len(xs)}", ", ".join(f"{i + 1} {x}" for i, x in enumerate(xs)), 0.7, False
        )
    kinds = d.words(d.pick((ANIMAL, FOOD, THING)), d.int(2, 3))
    xs = [d.pick(kinds) for _ in range(d.int(4, 10))]
    w = d.pick(kinds)
    q = d.say(
        *ways(
            """How often does {w} occur in this list: {x}? | Count {w} in: {x} |
            How many times is {w} in {x}? | How many {w} are in this list: {x}? | How often is {w} in {x}? |
            Count how often {w} occurs: {x} | Number of {w} in {x}? |
            In {x}, how many times do you see {w}? | How many times does {w} come up in {x}? |
            Tell me how often {w} is in {x}. | Count all {w} in {x}. | How often do I say {w}: {x}? |
            {x}: how many times {w}?"""
        )
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
            *ways(
                """Which of these numbers are {e}: {x}? | Keep only the {e} numbers: {x} |
                List the {e} numbers in {x}. | Which are {e}: {x}? | Find the {e} numbers: {x} |
                Give me only the {e} ones: {x} | {e} numbers in {x}? | Pick out the {e} numbers: {x} |
                Tell me which of {x} are {e}. | Select the {e} numbers from {x}. |
                Of {x}, which ones are {e}? | Drop all numbers that are not {e}: {x} |
                Show the {e} numbers of {x}. |
                Filter for {e} numbers: {x} | Only {e} numbers, please: {x} |
                Which {e} numbers do you see in {x}? | Are there {e} numbers in {x}? |
                Take the {e} numbers from {x}. | {x}: which are {e}?"""
            )
        ).format(e="even" if even else "odd", x=", ".join(map(str, xs)))
        steps = ", ".join(f"{x} {'even' if x % 2 == 0 else 'odd'}" for x in xs)
    elif kind == 1:
        xs = [d.number(99) for _ in range(d.int(4, 9))]
        k = d.int(10, 80)
        keep = [x for x in xs if x > k]
        q = d.say(
            *ways(
                """Which of these are greater than {k}: {x}? | Keep the numbers above {k}: {x} |
                List all numbers larger than {k} in {x}. | Which are above {k}: {x}? |
                Find the numbers over {k}: {x} | Which of {x} are larger than {k}? |
                Give me the ones above {k}: {x} | Pick the numbers greater than {k}: {x} |
                Numbers over {k} in {x}? | Select all above {k}: {x} | Of {x}, which are more than {k}? |
                Drop everything up to {k}: {x} | Show the numbers of {x} that are larger than {k}."""
            )
        ).format(k=k, x=", ".join(map(str, xs)))
        steps = ", ".join(f"{x} {'yes' if x > k else 'no'}" for x in xs)
    elif kind == 2:
        xs = [some_word(d) for _ in range(d.int(4, 8))]
        c = d.pick(xs)[0]
        keep = [x for x in xs if x[0] == c]
        q = d.say(
            *ways(
                """Which of these words start with {c}: {x}? | Keep only the words that begin with {c}: {x} |
                Words with first letter {c} in {x}? | Which words begin with {c}: {x}? |
                Find the words with {c} at the start: {x} | Words that start with {c} in {x}? |
                Give me the words starting with {c}: {x} | Pick the words that begin with {c}: {x} |
                Select words with {c} in front: {x} | Of {x}, which start with {c}? |
                List the words beginning with {c}: {x} | Which ones start with the letter {c}: {x}? |
                Show those that begin with {c}: {x} |
                Which words have {c} as first letter: {x}? | Only words with {c} in front: {x} |
                Starting with {c}, which are there: {x}? | Find all that start with {c}: {x} |
                Filter by first letter {c}: {x} | Keep what starts with {c}: {x}"""
            )
        ).format(c=c, x=", ".join(xs))
        steps = ", ".join(f"{x} {x[0]}" for x in xs)
    else:
        xs = [d.noun() for _ in range(d.int(2, 3))]
        xs = [d.pick(xs) for _ in range(d.int(4, 8))]
        keep = list(dict.fromkeys(xs))
        q = d.say(
            *ways(
                """Remove the duplicates: {x} | List each item once: {x} | Unique items of {x}? |
                Drop the duplicates: {x} | Each only once, please: {x} | {x} without duplicates, please. |
                Delete repeated items: {x} | Which different items are in {x}? |
                Give me each item once: {x} | Write every item only once: {x} | Make the list unique: {x} |
                Which items are in {x}, each named once? | Take out what is repeated: {x}"""
            )
        ).format(x=", ".join(xs))
        steps = ""
    return done(d, "filter", q, ", ".join(map(str, keep)) if keep else "none", steps, 0.6)


def position(d):
    xs = [d.noun() for _ in range(d.int(3, 8))]
    k = d.int(1, len(xs))
    q = d.say(
        *ways(
            """What is the {o} item of: {x}? | Which word is {o} in this list: {x} | Name the {o} of {x}. |
            Which item is {o}: {x} | Give me the {o} item of {x}. | The {o} of {x}? |
            Tell me the {o} item: {x} | What comes {o} in {x}? | In the list {x}, what is {o}? |
            Pick the {o} item out of {x}. | Which is the {o} word of {x}? | What is {o} in the list {x}? |
            Find the {o} item: {x}"""
        )
    ).format(o=ORDINAL[k - 1], x=", ".join(xs))
    return done(d, "position", q, xs[k - 1], ", ".join(f"{i + 1} {x}" for i, x in enumerate(xs)))


# what the question tells about each name: verb, ways to ask for it, value
FACTS = (
    (
        "lives in",
        ways(
            """Where does {w} live? | Where is the home of {w}? | {w} lives where? | In which city does {w} live? |
            Tell me where {w} lives. | Which city is home to {w}? | And {w}, where is that home? | Name the city of {w}. |
            Where do I find {w}? | What city does {w} live in? | Say where {w} lives."""
        ),
        lambda d: d.city(),
    ),
    (
        "likes",
        ways(
            """What does {w} like? | Tell me what {w} likes. | {w} likes what? | What is it that {w} likes? |
            What would make {w} happy? | Which thing does {w} like? | Name what {w} likes. | And what does {w} like? |
            What should I give to {w}? | Say what {w} likes. | What is to the taste of {w}? |
            What is {w} fond of? | Which thing makes {w} happy? | Do you know what {w} likes? | I want to know what {w} likes. |
            What does {w} want? | Of what is {w} fond?"""
        ),
        lambda d: d.noun(),
    ),
    (
        "works in",
        ways(
            """Where does {w} work? | In which city does {w} work? | {w} works where? | Tell me where {w} works. |
            What city does {w} work in? | Where is the office of {w}? | Name the city where {w} works. |
            And where does {w} work? | Where does {w} go to work? | Say where {w} works. | {w} has work in which city?"""
        ),
        lambda d: d.city(),
    ),
    (
        "owns a",
        ways(
            """What does {w} own? | Tell me what {w} owns. | {w} owns what? | What is it that {w} owns? |
            Which thing belongs to {w}? | What belongs to {w}? | Name what {w} owns. | And what does {w} own? |
            What does {w} have? | Say what {w} owns. | What is in the hands of {w}?"""
        ),
        lambda d: d.thing(),
    ),
    (
        "has the number",
        ways(
            """Which number has {w}? | What is the number of {w}? | Tell me the number of {w}. | Number of {w}? |
            What number does {w} have? | Under which number is {w} listed? | Which number belongs to {w}? |
            {w} has which number? | Name the number of {w}. | Say which number {w} has. | And the number of {w}?"""
        ),
        lambda d: str(d.int(5, 90)),
    ),
)


def who_what(d):
    """Facts given in the question, one of them asked for, from either side."""
    names = list(dict.fromkeys(d.first() for _ in range(d.int(2, 6))))
    verb, asks, make = d.pick(FACTS)
    facts = [(p, make(d)) for p in names]
    who, what = d.pick(facts)
    told = " ".join(f"{p} {verb} {v}." for p, v in facts)
    if d.chance(0.2) and [v for _, v in facts].count(what) == 1:
        q, short = f"Who {verb} {what}?", who
    else:
        q, short = d.say(*asks).format(w=who), f"a {what}" if verb == "owns a" else what
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
