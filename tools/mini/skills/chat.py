"""Conversation: who it is, what lagoon's commands do, small facts, remembering what was said, honest
ignorance."""
from .arith import work
from .conv import Conv, reply, user
from .persona import PERSONA
from .words import (
    ADJ,
    ANIMAL,
    CITY,
    COLOR,
    DAYS,
    FOOD,
    JOB,
    MONTH,
    ORDINAL,
    PLACE,
    SUBJECT,
    THING,
    WEEKDAY,
    article,
    join,
    plural,
    ways,
)

COMMANDS = [
    (
        "serve",
        "starts the HTTP server with the live dashboard",
        ("start the server", "run the server", "serve a model over HTTP"),
    ),
    (
        "chat",
        "opens an interactive chat in the terminal",
        ("chat with a model", "talk to the model in the terminal"),
    ),
    (
        "generate",
        "writes one answer to a prompt",
        ("get one answer from the command line", "answer a single prompt"),
    ),
    (
        "fetch",
        "downloads a model and its drafter, resumes and verifies",
        ("download a model", "get the model files"),
    ),
    (
        "inspect",
        "shows a file's metadata, configuration, tensors and memory plan",
        ("see the metadata of a file", "look into a GGUF file", "see the memory plan"),
    ),
    ("tokenize", "turns text into token ids", ("turn text into tokens", "see the tokens of a text")),
    ("detokenize", "turns token ids back into text", ("turn tokens into text", "decode token ids")),
    (
        "template",
        "renders a chat request as the prompt that the model sees",
        ("see the rendered prompt", "render a prompt"),
    ),
    ("logits", "compares logits with a reference", ("check the logits", "compare with a reference")),
    (
        "perplexity",
        "measures the perplexity of a text",
        ("measure perplexity", "compute the perplexity of a file"),
    ),
    ("bench", "measures the speed of prefill and decode", ("measure the speed", "benchmark my machine")),
    ("synth", "writes a model file of a real shape with synthetic weights", ("make a synthetic model file",)),
    (
        "convert",
        "turns Hugging Face weights into a GGUF file",
        ("convert safetensors", "make a GGUF file from a checkpoint"),
    ),
    ("quantize", "writes a GGUF file with smaller weights", ("make a model smaller", "quantize a model")),
    ("imatrix", "collects an importance matrix for quantizing", ("collect an importance matrix",)),
]
GLOSSARY = {
    "a token": "A token is a piece of text, such as a word or a part of one, that a model reads and writes as a number.",
    "a tokenizer": "A tokenizer cuts text into tokens and turns tokens back into text.",
    "a language model": "A language model predicts the next token of a text from the tokens before it.",
    "attention": "Attention lets each token look at earlier tokens and take from them what it needs.",
    "a sliding window": "A sliding window limits attention to the last few hundred tokens, so its memory does not grow.",
    "the KV cache": "The KV cache stores the keys and values of earlier tokens so that they are not computed again.",
    "a mixture of experts": "In a mixture of experts a router picks a few small networks for each token, so most weights rest.",
    "a router": "A router scores the experts for a token and chooses the best few of them.",
    "an expert": "An expert is one of many small feed-forward networks of which a router uses a few for each token.",
    "quantization": "Quantization stores weights with fewer bits, which saves memory and time and costs a little accuracy.",
    "GGUF": "GGUF is a file format that keeps a model's weights, its settings and its tokenizer together.",
    "speculative decoding": "In speculative decoding a small drafter guesses several tokens and the model checks them at once.",
    "a drafter": "A drafter is a small model that guesses the next tokens, which the large model then checks.",
    "temperature": "Temperature sets how random sampling is: zero always takes the most likely token.",
    "sampling": "Sampling draws the next token at random according to the model's probabilities.",
    "top-k": "Top-k keeps only the k most likely tokens before one is drawn.",
    "top-p": "Top-p keeps the most likely tokens whose probabilities together reach p.",
    "perplexity": "Perplexity tells how surprised a model is by a text: lower is better.",
    "a logit": "A logit is the score that a model gives to one possible next token.",
    "prefill": "Prefill is the phase in which the model reads the prompt, many tokens at once.",
    "decoding": "Decoding is the phase in which the model writes its answer, one token after the other.",
    "an embedding": "An embedding is the list of numbers by which a model represents a token.",
    "rotary position embedding": "Rotary position embedding turns keys and queries by an angle that grows with the position.",
    "a context window": "The context window is the number of tokens that a model can read at once.",
    "a system prompt": "A system prompt is a text before the conversation that tells the model how to behave.",
    "thinking": "Thinking is text that the model writes for itself before its answer.",
    "a tool call": "A tool call is a request of the model to run a function with given arguments.",
    "a checkpoint": "A checkpoint is a saved state of a model's weights.",
    "a GPU": "A GPU is a processor with many small cores that multiply matrices quickly.",
    "JSON": "JSON is a text format for data made of objects, arrays, strings, numbers and literals.",
    "a function": "A function is a named piece of code that takes arguments and returns a result.",
    "a loop": "A loop runs the same code several times.",
    "a variable": "A variable is a name for a value in a program.",
    "a bug": "A bug is a mistake in a program.",
    "a list": "A list holds several values in order.",
    "a prime number": "A prime number is larger than one and divisible only by one and itself.",
    "an even number": "An even number is divisible by two.",
    "a palindrome": "A palindrome is a word that reads the same backwards.",
    "a triangle": "A triangle is a shape with three sides.",
    "a square": "A square is a shape with four equal sides.",
    "a week": "A week has seven days.",
    "a year": "A year has twelve months.",
    "a dozen": "A dozen is twelve.",
    "water": "Water is a clear liquid that falls as rain and fills rivers, lakes and seas.",
    "the sun": "The sun is the star that gives the Earth light and warmth.",
    "the moon": "The moon circles the Earth about once a month.",
    "a lagoon": "A lagoon is shallow water that is separated from the sea by a bar of sand or a reef.",
}
OPPOSITE = """hot cold, big small, fast slow, light dark, up down, left right, open closed, full empty, happy
sad, old young,
new old, early late, high low, long short, hard soft, wet dry, strong weak, rich poor, loud quiet, clean
dirty, near far,
thick thin, wide narrow, first last, day night, push pull, buy sell, true false, inside outside, always
never, deep shallow,
sweet bitter, sharp blunt, heavy light, good bad, easy difficult, cheap expensive"""
PAIRS = [tuple(p.split()) for p in OPPOSITE.replace("\n", " ").split(",")]
SYMBOL = {
    "hydrogen": "H",
    "helium": "He",
    "carbon": "C",
    "nitrogen": "N",
    "oxygen": "O",
    "sodium": "Na",
    "iron": "Fe",
    "copper": "Cu",
    "silver": "Ag",
    "gold": "Au",
    "lead": "Pb",
    "tin": "Sn",
    "zinc": "Zn",
    "calcium": "Ca",
    "potassium": "K",
    "sulfur": "S",
    "silicon": "Si",
    "neon": "Ne",
}
LEGS = {
    "spider": 8,
    "ant": 6,
    "bee": 6,
    "wasp": 6,
    "moth": 6,
    "snail": 0,
    "eel": 0,
    "whale": 0,
    "trout": 0,
    "duck": 2,
    "hawk": 2,
    "owl": 2,
    "swan": 2,
    "raven": 2,
    "dog": 4,
    "cat": 4,
    "cow": 4,
    "horse": 4,
    "frog": 4,
    "lion": 4,
    "tiger": 4,
    "bear": 4,
    "crab": 10,
}
MIX = {
    ("red", "blue"): "purple",
    ("red", "yellow"): "orange",
    ("blue", "yellow"): "green",
    ("black", "white"): "gray",
    ("red", "white"): "pink",
}
PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split()
UNKNOWN = "I do not know that. I am only a small demonstration model."


def persona(d):
    asks, answer = d.pick(PERSONA)
    why = "The user asks about me." if "I " in answer and "help" not in answer else ""
    q = d.say(*asks)
    think = d.chance(0.5)
    turns = [user(q), reply(answer, why if think else "")]
    if d.chance(0.3):
        asks, answer = d.pick(PERSONA)
        turns += [user(d.say(*asks)), reply(answer)]
    return Conv(turns, "persona", thinking=think)


def command(d):
    name, does, wishes = d.pick(COMMANDS)
    if d.chance(0.5):
        q = d.say(
            *ways(
                """What does lagoon {n} do? | What is lagoon {n} for? | Explain the command lagoon {n}. |
                What does the command {n} of lagoon do? | lagoon {n}? | Tell me about lagoon {n}. |
                What is the command lagoon {n} good for? | When do I use lagoon {n}? |
                Describe lagoon {n}. | What happens when I run lagoon {n}? | lagoon {n}: what is that? |
                What can I do with lagoon {n}? | Why would I run lagoon {n}? | Explain lagoon {n} to me. |
                What is the use of lagoon {n}? | Give me a line about lagoon {n}."""
            )
        ).format(n=name)
        a = f"lagoon {name} {does}."
    else:
        q = d.say(
            *ways(
                """How do I {w}? | How can I {w} with lagoon? | Which command do I need to {w}? |
                I want to {w}. | How would I {w}? | What is the lagoon command to {w}? | How can one {w}? |
                Show me how to {w}. | What do I run to {w}? | With which command can I {w}? |
                Is there a command to {w}? | Tell me how to {w}. | I need to {w}. |
                How does one {w} with lagoon? | Can lagoon {w}? | lagoon: how to {w}? |
                What do I type to {w}?"""
            )
        ).format(w=d.pick(wishes))
        a = f"Use lagoon {name}: it {does}."
    think = d.chance(0.3)
    return Conv([user(q), reply(a)], "command", thinking=think)


def glossary(d):
    what = d.pick(list(GLOSSARY))
    q = d.say(
        *ways(
            """What is {w}? | Explain {w}. | Define {w}. | Tell me what {w} is. | What's {w}? |
            Do you know what {w} is? | Please explain {w} to me. | What does {w} mean? |
            Can you explain {w}? | Give me a definition of {w}. | What do you call {w}? |
            Tell me about {w}. | What is meant by {w}? | I want to know what {w} is. | Describe {w}. |
            And what is {w}?"""
        )
    ).format(w=what)
    return Conv([user(q), reply(GLOSSARY[what])], "glossary", thinking=d.chance(0.3))


def fact(d):
    k = d.int(0, 10)
    if k == 0:
        city = d.pick(list(CITY))
        if d.chance(0.5):
            q, a = (
                d.say(
                    *ways(
                        """What is the capital of {c}? | Name the capital of {c}. |
                        Which city is the capital of {c}? | Capital of {c}? | Tell me the capital of {c}. |
                        What city is the capital of {c}? | {c}: capital? | Do you know the capital of {c}? |
                        What is the capital city of {c}? | Which capital does {c} have? |
                        From which city is {c} governed? | I need the capital of {c}."""
                    )
                ).format(c=CITY[city]),
                f"The capital of {CITY[city]} is {city}.",
            )
        else:
            q, a = (
                d.say(
                    *ways(
                        """Which country has the capital {c}? | {c} is the capital of which country? |
                        Where is {c}? | Of which country is {c} the capital? | {c} is the capital of what? |
                        In which country is {c}? | Which country does {c} belong to? |
                        To which country does {c} belong? | What country is {c} in? |
                        Name the country of {c}. | {c}: which country?"""
                    )
                ).format(c=city),
                f"{city} is the capital of {CITY[city]}.",
            )
    elif k == 1:
        m = d.int(0, 11)
        q = d.say(
            *ways(
                """How many days does {m} have? | How long is {m}? | Number of days in {m}? |
                How many days are in {m}? | How many days are there in {m}? | Days in {m}? |
                Tell me how many days {m} has. | What is the length of {m}? | How many days long is {m}? |
                {m} has how many days? | Count the days of {m}. |
                Does {m} have 30 or 31 days? | How many days belong to {m}? |
                How many days will {m} have? | What number of days does {m} have? |
                Say how many days {m} has. |
                Do you know how long {m} is? | {m}: how many days? | Of how many days is {m} made? |
                I need the number of days in {m}. | With how many days does {m} come? |
                How many days until {m} is over?"""
            )
        ).format(m=MONTH[m])
        a = f"{MONTH[m]} has {DAYS[m]} days" + (", and 29 in a leap year." if m == 1 else ".")
    elif k == 2:
        x, y = d.pick(PAIRS)
        q, a = (
            d.say(
                *ways(
                    """What is the opposite of {x}? | Opposite of {x}? |
                    Give me the opposite of the word {x}. | What is the contrary of {x}? |
                    What is the reverse of {x}? | Tell me the opposite of {x}. | Name the opposite of {x}. |
                    Which word is the opposite of {x}? | {x}: opposite? | The opposite of {x}, please. |
                    What word means the opposite of {x}? | Find the opposite of {x}. |
                    What is opposite to {x}? | {x} and its opposite? |
                    Do you know the opposite of {x}? | Say the opposite of {x}. |
                    What is not {x} but the opposite? | I need the opposite of {x}. |
                    The contrary of {x}?"""
                )
            ).format(x=x),
            f"The opposite of {x} is {y}.",
        )
    elif k == 3:
        x = d.pick(list(SYMBOL))
        q, a = (
            d.say(
                *ways(
                    """What is the chemical symbol of {x}? | Which symbol does {x} have? | Symbol for {x}? |
                    What is the symbol of {x}? | Chemical symbol of {x}? |
                    How is {x} written in chemistry? |
                    Chemists write {x} how? | In chemistry, what is {x}? |
                    What do chemists write for {x}? | {x} has which symbol? |
                    I need the symbol of {x}. | Do you know the symbol of {x}? | {x}: symbol? | Tell me the symbol for {x}. |
                    Give me the chemical symbol for {x}. | Which symbol stands for {x}? |
                    Name the symbol of {x}. | What stands for {x} in chemistry?"""
                )
            ).format(x=x),
            f"The symbol of {x} is {SYMBOL[x]}.",
        )
    elif k == 4:
        x = d.pick(list(LEGS))
        q, a = (
            d.say(
                *ways(
                    """How many legs does {x} have? | Number of legs of {x}? | How many legs has {x}? |
                    Legs of {x}? | On how many legs does {x} walk? | {x} has how many legs? |
                    Count the legs of {x}. | Tell me how many legs {x} has. |
                    What is the number of legs of {x}? | With how many legs is {x} born? |
                    Does {x} have legs, and how many?"""
                )
            ).format(x=article(x)),
            f"{article(x).capitalize()} has {LEGS[x] or 'no'} legs.",
        )
    elif k == 5:
        (x, y), z = d.pick(list(MIX.items()))
        if d.chance(0.5):
            x, y = y, x
        q, a = (
            d.say(
                *ways(
                    """What do you get when you mix {x} and {y}? | Mix {x} and {y}: which color is that? |
                    {x} and {y} make which color? | Which color do {x} and {y} make? |
                    What color is {x} mixed with {y}? | I mix {x} with {y}. What do I get? |
                    {x} plus {y}: which color? | What is the mix of {x} and {y}? |
                    What happens when I mix {x} and {y}? | Name the color that {x} and {y} give. |
                    Color of {x} mixed with {y}?"""
                )
            ).format(x=x, y=y),
            f"{x.capitalize()} and {y} make {z}.",
        )
    elif k == 6:
        seq, n = d.pick(((WEEKDAY, 7), (MONTH, 12)))
        i, after = d.int(0, n - 1), d.chance(0.5)
        j = (i + (1 if after else -1)) % n
        q, a = (
            d.say(
                *ways(
                    """What comes {w} {x}? | Which {k} is {w} {x}? | What is the {k} {w} {x}? |
                    What is {w} {x}? | Name the {k} {w} {x}. | Tell me the {k} {w} {x}. | The {k} {w} {x}? |
                    Which {k} comes {w} {x}? | Which one is {w} {x}? | Say the {k} {w} {x}. |
                    What {k} do we have {w} {x}?"""
                )
            ).format(w="after" if after else "before", x=seq[i], k="day" if n == 7 else "month"),
            f"{seq[j]}.",
        )
    elif k == 7:
        i = d.int(0, 7)
        if d.chance(0.5):
            q, a = (
                d.say(
                    *ways(
                        """Which planet is the {o} from the sun? | What is the {o} planet? |
                        Name the {o} planet from the sun. | Which planet comes {o}? | The {o} planet? |
                        Tell me the {o} planet from the sun. | What is the {o} planet from the sun? |
                        Counted from the sun, which planet is the {o}? | Which is the {o} planet? |
                        What do we call the {o} planet? | Who is {o} among the planets? |
                        Name planet number {o}. | Say the {o} planet. |
                        Do you know the {o} planet? | I need the {o} planet from the sun. |
                        {o} planet? | In order from the sun, which planet is {o}? |
                        What planet is the {o} one?"""
                    )
                ).format(o=ORDINAL[i]),
                f"{PLANETS[i]} is the {ORDINAL[i]} planet from the sun.",
            )
        else:
            q, a = (
                d.say(
                    *ways(
                        """Name the planets. | List all planets. | Which planets are there? |
                        What are the planets? | What planets are there? | Planets of the sun? |
                        Tell me the planets. | Give me a list of the planets. | Name all planets. |
                        Which planets circle the sun? | The planets, please. | Enumerate the planets."""
                    )
                ),
                f"The planets are {join(PLANETS)}.",
            )
    elif k == 8:
        x = d.pick(d.pick((ANIMAL, FOOD, THING)))
        q, a = (
            d.say(
                *ways(
                    """What is the plural of {x}? | Plural of {x}? | One {x}, two what? |
                    How do you write more than one {x}? | Tell me the plural of {x}. | Plural form of {x}? |
                    What is more than one {x}? | Make {x} plural. | What is the plural form of {x}? |
                    Write the plural of {x}. | How is the plural of {x} formed? |
                    Give me the plural of {x}. | Many of {x} are called what?"""
                )
            ).format(x=x),
            f"The plural of {x} is {plural(x)}.",
        )
    elif k == 9:
        pool, kind = d.pick(
            ((ANIMAL, "an animal"), (FOOD, "food"), (COLOR, "a color"), (JOB, "a job"), (PLACE, "a place"))
        )
        x = d.pick(pool)
        q, a = (
            d.say(
                *ways(
                    """What kind of thing is {x}? | What is {x}: an animal, food, a color, a job or a place? |
                    Is {x} an animal, food, a color, a job or a place? | What sort of thing is {x}? |
                    {x}: what is it? | In which group is {x}: animals, food, colors, jobs or places? |
                    Is {x} something to eat, an animal, a color, a job or a place? | Which kind is {x}? |
                    Sort {x} into animal, food, color, job or place. | Tell me what kind of thing {x} is. |
                    Animal, food, color, job or place: what is {x}?"""
                )
            ).format(x=x),
            f"{x.capitalize()} is {kind}.",
        )
        if x == "orange":
            a = "Orange is food and a color."
    else:
        i = d.int(0, 25)
        c = chr(97 + i)
        after = d.chance(0.5) and i < 25 or i == 0
        q, a = (
            d.say(
                *ways(
                    """Which letter comes {w} {c}? | What letter is {w} {c} in the alphabet? |
                    Name the letter {w} {c}. | The letter {w} {c}? | What comes {w} the letter {c}? |
                    Which letter is {w} {c}? | Tell me the letter {w} {c}. |
                    In the alphabet, what is {w} {c}? | Which letter stands {w} {c}? |
                    Say the letter {w} {c}. | What letter do we have {w} {c}?"""
                )
            ).format(w="after" if after else "before", c=c),
            f"{chr(98 + i) if after else chr(96 + i)}",
        )
    return Conv([user(q), reply(a)], "fact", thinking=d.chance(0.3))


def unknown(d):
    """Questions outside of what it can know."""
    who, w = d.full_name(), d.pseudo()
    q = d.say(
        *ways(
            """Who won the {s} cup in {y}? | What did {who} say about the {t} yesterday? |
            Why is the {t} of {c} so {a}? | How tall is {who}? | Write an essay about {s} in {c}. |
            What is the best {p} in {c}? | Who is {who}? | What happened in {c} in {y}? |
            When was {who} born? | What is the price of {t} today? | Who discovered {w}? |
            Translate {t} into Latin. | What will the weather be in {c} tomorrow? |
            Tell me the history of {s}. | Why do {an} {w}? | Which book did {who} write? |
            How does a {w} engine work? | What is {w}? | Explain the theory of {w}. |
            Summarize the latest news about {c}. | What time is it? | Where can I buy a {t}? |
            Who is the president of {w}? | What is the meaning of life? | Recommend a film about {s}. |
            Give me a recipe for {t} soup. | What is the population of {c}? |
            Who lost the {s} final of {y}? | Who won the {s} prize in {y}? |
            Who was the best at {s} in {y}? | Which team won in {c} in {y}? | Where did {who} grow up? |
            How old is {who}? | Is {who} married? | What does {who} do now? |
            What is the tallest building in {c}? | Who is the mayor of {c}? | How far is {c} from the sea? |
            When was {c} founded? | Which {t} is the best? | How much does a {t} cost? |
            Who invented the {w}? | What is the sense of {s}? | Why does {who} like {s}? |
            What are the rules of {w}? | Write a novel about a {t}. | What will happen in {y}? |
            Was {who} in {c} in {y}? | Describe the city of {c}. | What is your opinion on {s}? |
            What is {w} made of? | How do I get from {c} to {w}? | Translate {w} into Greek. |
            What is the news from {c}? | What is the date today?"""
        )
    ).format(
        s=d.word(SUBJECT),
        y=d.int(1900, 2030),
        who=who,
        t=d.thing(),
        c=d.city(),
        a=d.word(ADJ),
        w=w,
        p=d.word(PLACE),
        an=plural(d.word(ANIMAL)),
    )
    think = d.chance(0.5)
    return Conv(
        [user(q), reply(UNKNOWN, "I have no knowledge about this." if think else "")],
        "unknown",
        thinking=think,
    )


def remember(d):
    """The user tells things over several turns and asks for one of them later."""
    slots = [
        (
            "name",
            d.first,
            ways(
                """My name is {v}. | I am {v}. | Call me {v}. | Hello, I'm {v}! | Hi, my name is {v}. |
                I'm called {v}. | You can call me {v}. | People call me {v}. | The name is {v}. |
                My friends call me {v}. | {v} is my name. | This is {v} speaking. | Here is {v}. |
                I go by {v}. | It is me, {v}. | I was named {v}. | Good morning, I am {v}."""
            ),
            "Nice to meet you, {v}.",
            ways(
                """What is my name? | Do you remember my name? | Who am I? | What am I called? |
                Tell me my name. | What was my name again? | Say my name. | How do people call me? |
                Which name did I tell you? | Do you know my name? | What do people call me? | My name? |
                Can you tell me my name? | What is it that I am called?"""
            ),
            "Your name is {v}.",
        ),
        (
            "city",
            d.city,
            ways(
                """I live in {v}. | My home is {v}. | I come from {v}. | I am from {v}. | I moved to {v}. |
                My home town is {v}. | I have a flat in {v}. | {v} is my home. | I am at home in {v}. |
                My family lives in {v}. | My house is in {v}. | I settled in {v}. | I grew up in {v}. |
                My city is {v}. | You find me in {v}."""
            ),
            "{v} sounds nice.",
            ways(
                """Where do I live? | Which city do I live in? | Where am I from? | Where is my home? |
                What is my city? | Tell me where I live. | In which city am I at home? |
                Which city did I mention? | Do you know where I live? | Where did I say I live? |
                What is my home town? | Name my city. | In which city do I live?"""
            ),
            "You live in {v}.",
        ),
        (
            "color",
            lambda: d.word(COLOR),
            ways(
                """My favorite color is {v}. | I like the color {v} best. | {v} is my favorite color. |
                I love the color {v}. | The color I like best is {v}. |
                I prefer {v} to all other colors. | My color is {v}. | {v} is the color for me. |
                No color is better than {v}. | {v} is the color I love. |
                Of all colors I like {v} most. | I want everything in {v}. |
                I am fond of the color {v}. | Best of all colors is {v}."""
            ),
            "{v} is a good color.",
            ways(
                """What is my favorite color? | Which color do I like? | What color do I like best? |
                Do you remember my favorite color? | Which color is my favorite? |
                Name my favorite color. | Tell me which color I like. | What color do I prefer? |
                Which color do I love? | What is the color I like best? | My favorite color? |
                Which is my color? | Which color did I mention? | What color did I say?"""
            ),
            "Your favorite color is {v}.",
        ),
        (
            "pet",
            d.first,
            ways(
                """My dog is called {v}. | I have a dog named {v}. | My dog's name is {v}. |
                I own a dog, {v}. | The name of my dog is {v}. | {v} is my dog. |
                My dog answers to {v}. | I named my dog {v}. | I call my dog {v}. |
                We have a dog, it is called {v}. | I walk my dog {v} every day. |
                Our dog has the name {v}. | I live with my dog {v}. | {v} is what I call my dog. |
                Meet my dog {v}. | I got a dog and named it {v}. | I have a dog, {v}. |
                That is my dog {v}. | There is a dog in my house, {v}. | The dog I own is {v}."""
            ),
            "{v} is a good name for a dog.",
            ways(
                """What is my dog called? | What is the name of my dog? | What's my dog's name? |
                Who is my dog? | How is my dog called? | Tell me my dog's name. |
                Which name has my dog? | What do I call my dog? | What did I name my dog? |
                Name my dog. | What name did I give my dog? | Do you know my dog? | And my dog? |
                How do I call my dog? | My dog's name, please."""
            ),
            "Your dog is called {v}.",
        ),
        (
            "job",
            lambda: d.word(JOB),
            ways(
                """I work as {av}. | I am {av} by trade. | My job is {v}. | I am {av}. |
                I earn my living as {av}. | I became {av}. | My profession is {v}. |
                I was trained as {av}. | They hired me as {av}. | By profession I am {av}. |
                I make a living as {av}. | I have worked as {av} for years. | At work I am {av}. |
                In my job I am {av}. |
                They pay me as {av}. | I am employed as {av}. | I started as {av}. |
                Everybody needs {av}, and I am one. | I am working as {av}. |
                My work is that of {av}."""
            ),
            "That must be interesting work.",
            ways(
                """What is my job? | What do I work as? | What do I do for a living? |
                Which job do I have? | What is my profession? | How do I earn my living? |
                Tell me my job. | What work do I do? | As what do I work? |
                Which profession do I have? | What is it that I work as? | Do you know my job? |
                What am I by trade? | Name my job."""
            ),
            "You work as {av}.",
        ),
        (
            "number",
            lambda: str(d.int(2, 999)),
            ways(
                """My lucky number is {v}. | Remember the number {v}. | The number is {v}. |
                Please remember {v}. | My number is {v}. | Keep the number {v} in mind. |
                Note the number {v}. | Do not forget the number {v}. | {v} is my lucky number. |
                Here is a number: {v} | Hold on to the number {v}. | {v} is the number to remember. |
                I give you the number {v}. | Store the number {v}. |
                The number I mean is {v}. | I chose the number {v}. | Write down the number {v}. |
                Please keep {v}. | Memorize {v}. |
                I like the number {v}. | My number was always {v}. |
                The number you should know is {v}. | Think of the number {v}. | Never forget {v}. |
                {v} is a number I like."""
            ),
            "I will remember {v}.",
            ways(
                """Which number did I tell you? | What was the number? | What is the number? |
                Tell me the number. | Which number should you remember? | Say the number. |
                Do you remember the number? | The number, please. | What number did I give you? |
                What number did I say? | Which number was it? | Repeat the number. |
                Do you still know the number? | Which is the number? | Give me the number."""
            ),
            "The number is {v}.",
        ),
        (
            "food",
            lambda: d.word(FOOD),
            ways(
                """I love {v}. | My favorite food is {v}. | I like to eat {v}. | I eat {v} every day. |
                I could eat {v} all day. | The best food is {v}. | I am fond of {v}. |
                I enjoy {v} most. | Nothing tastes better than {v}. | {v} is my favorite food. |
                I like {v} more than any other food. | For me, {v} is the best food. |
                I always order {v}. | My favorite dish is {v}. |
                I really like {v}. | Give me {v} every day. | {v} is what I love to eat. |
                There is nothing like {v}. | I never get enough {v}. | I like {v} best. |
                What I eat most is {v}."""
            ),
            "Enjoy your {v}.",
            ways(
                """What is my favorite food? | What do I love to eat? | Which food do I like? |
                What do I like to eat? | Which food is my favorite? | What food do I like best? |
                Name my favorite food. | What would I like to eat? | Tell me what I like to eat. |
                Which food do I love? | What do I enjoy eating? | What should I eat tonight? |
                What is my favorite dish? | Which food did I mention? |
                Which dish do I like best? | What do I eat most? | What food did I say I love? |
                Which food do I enjoy? | The food I like? | Do you remember my favorite food? |
                What is it that I love to eat?"""
            ),
            "Your favorite food is {v}.",
        ),
        (
            "code",
            d.code,
            ways(
                """The password is {v}. | Keep this code: {v} | The code is {v}. | Here is the code: {v} |
                The secret code is {v}. | My code is {v}. | Remember this code: {v} |
                Note the password {v}. | Here is the password: {v} | Please keep {v} for me. |
                Do not forget the code {v}. | {v} is the password. | {v} is the code. |
                The code reads {v}. | Store this password: {v} | Hold on to the code {v}. |
                Save {v} for later. | I trust you with the code {v}."""
            ),
            "I will keep it.",
            ways(
                """What is the password? | What was the code? | What is the code? | Tell me the code. |
                Which code did I give you? | Which password was it? | What code should you keep? |
                Repeat the code. | Do you remember the code? | Give me the password. |
                The code, please. | Do you still have the code? | What was the password? |
                Say the password. | Which is the code? | And the password?"""
            ),
            "It is {v}.",
        ),
    ]
    chosen = d.r.sample(slots, d.int(1, 4))
    turns, known = [], []
    for _, make, tell, ack, ask, answer in chosen:
        v = make()
        fill = {"v": v, "av": article(v)}
        told = ack.format(**fill)
        turns += [user(d.say(*tell).format(**fill)), reply(told[0].upper() + told[1:])]
        known.append((ask, answer, fill))
        if d.chance(0.25):
            asks, a = d.pick(PERSONA)
            turns += [user(d.say(*asks)), reply(a)]
    for ask, answer, fill in d.r.sample(known, d.int(1, len(known))):
        turns += [user(d.say(*ask)), reply(answer.format(**fill))]
    return Conv(turns, "remember", thinking=d.chance(0.3), keep_history=d.chance(0.5))


def follow_up(d):
    """An arithmetic result carried on over turns."""
    a, b = d.int(2, 99), d.int(2, 99)
    op = d.pick("+-*") if a >= b else "+"
    if op == "*":
        b = d.int(2, 9)
    think = d.chance(0.6)
    steps, r = work(op, a, b)

    def answer(text, why):
        return reply(text, why) if think else reply(text)

    turns = [
        user(
            d.say(
                *ways(
                    """What is {a} {op} {b}? | Compute {a} {op} {b}. | {a} {op} {b} | Calculate {a} {op} {b}. |
                {a} {op} {b} = ? | How much is {a} {op} {b}? | Work out {a} {op} {b}. |
                Tell me {a} {op} {b}. | {a} {op} {b}, please. | What does {a} {op} {b} make? |
                I need {a} {op} {b}."""
                )
            ).format(a=a, op=op, b=b)
        ),
        answer(f"{a} {'×' if op == '*' else op} {b} = {r}", steps),
    ]
    cur = int(r)
    for _ in range(d.int(1, 3)):
        k = d.int(2, 50)
        kind = d.int(0, 3)
        if kind == 0:
            q, o, x = (
                d.say(
                    *ways(
                        """Double that. | Now double it. | Times two, please. | And twice that? | Twice that. |
                    Double the result. | Make it twice as much. | Multiply it by two. | And doubled? |
                    Take it twice. | Now the double of that. | Please double that. |
                    Double it, please. | Now twice as much. | Two times that. |
                    And now the double? | Now make it twice that. | Doubled, please."""
                    )
                ),
                "*",
                2,
            )
        elif kind == 1:
            q, o, x = (
                d.say(
                    *ways(
                        """Add {k} to that. | Plus {k}. | Now add {k}. | And {k} more? | Add {k}. |
                        Now plus {k}. | {k} more. | And {k} on top? | Increase it by {k}. |
                        Put {k} on top. | Then add {k}. | Raise that by {k}. | Add another {k}."""
                    )
                ).format(k=k),
                "+",
                k,
            )
        elif kind == 2 and cur > k:
            q, o, x = (
                d.say(
                    *ways(
                        """Subtract {k}. | Take away {k}. | Minus {k}. | Now {k} less. |
                        Subtract {k} from that. | Less {k}. | Now minus {k}. | Decrease it by {k}. |
                        Take {k} off. | {k} less, please. | Reduce that by {k}. | Then take away {k}. |
                        Remove {k}."""
                    )
                ).format(k=k),
                "-",
                k,
            )
        else:
            k = d.int(2, 9)
            q, o, x = (
                d.say(
                    *ways(
                        """Multiply that by {k}. | Times {k}. | Now multiply by {k}. | Multiply by {k}. |
                    Now times {k}. | Take it {k} times. | And {k} times that? | {k} times as much. |
                    Then multiply with {k}. | Make it {k} times as much. | Multiply the result by {k}. |
                    Now take that {k} times. | {k} times over. | And that times {k}. |
                    Multiplied by {k}, what is it? | Make that {k} times bigger. |
                    Grow it {k} times. |
                    I want {k} times that. | And multiplied by {k}? |
                    Then by {k}. | Again times {k}. | Now the result times {k}. | Scale it by {k}. |
                    What is {k} times that? | Multiply with {k}. | Multiply this by {k}. |
                    Multiply it by {k}. | {k} times it. | And times {k}? | By {k}, please. |
                    Now {k} times that. | Times {k}, please."""
                    )
                ).format(k=k),
                "*",
                k,
            )
        steps, r = work(o, cur, x)
        turns += [user(q), answer(f"{cur} {'×' if o == '*' else o} {x} = {r}", steps)]
        cur = int(r)
    return Conv(turns, "follow up", thinking=think, keep_history=d.chance(0.5))


def system_rule(d):
    """A system message that sets a rule, a role or a fact."""
    k = d.int(0, 5)
    asks, a = d.pick(PERSONA)
    q = d.say(*asks)
    if k == 0:
        s, a = (
            d.say(
                *ways(
                    """Answer in capital letters only. | Write everything in upper case. |
                    Use only capital letters. | Shout: only capital letters. | Write in capitals. |
                    All your answers are in upper case. | Use upper case everywhere. |
                    Answer in upper case. | You write capital letters only. | Never use small letters. |
                    Capitalize every letter of your answer. | Only upper case, please."""
                )
            ),
            a.upper(),
        )
    elif k == 1:
        w = d.pseudo()
        s, a = (
            d.say(
                *ways(
                    """End every answer with the word {w}. | Always finish with {w}. |
                    Your last word is always {w}. | Put {w} at the end of each answer. |
                    Every answer ends with {w}. | Close with the word {w}. | Say {w} at the end. |
                    The last word of each reply is {w}. | Finish each reply with {w}. |
                    After your answer, add {w}. | Each of your answers ends in {w}. |
                    Add the word {w} at the end."""
                )
            ).format(w=w),
            f"{a} {w}",
        )
    elif k == 2:
        n = d.first()
        s = d.say(
            *ways(
                """Your name is {n}. | You are {n}, a helpful assistant. | You are called {n}. | Act as {n}. |
                You are {n}. | Users know you as {n}. | Your users call you {n}. |
                You go by the name of {n}. | You play {n}. | The name you use is {n}. | Call yourself {n}. |
                From now on you are {n}. | You are the assistant {n}. | You have the name {n}."""
            )
        ).format(n=n)
        q, a = (
            d.say(
                *ways(
                    """Who are you? | What is your name? | What's your name? | Introduce yourself. | Your name? |
                    Tell me your name. | May I ask your name? | How are you called? | Who is this? | Name yourself. |
                    And who are you? | With whom do I speak? | What should I call you? | What is the name?"""
                )
            ),
            f"My name is {n}.",
        )
    elif k == 3:
        t = d.time()
        p = d.word(PLACE)
        s = d.say(
            *ways(
                """The {p} opens at {t}. | You answer questions about the {p}. It opens at {t}. |
                The {p} is open from {t}. | The {p} is closed until {t}. |
                Visitors of the {p} may enter from {t} on. | Fact: the {p} opens at {t}. |
                You work for the {p}, which opens at {t}. | Opening time of the {p}: {t}. |
                From {t} on, the {p} is open. | Tell visitors that the {p} opens at {t}. |
                The doors of the {p} open at {t}. |
                Know that the {p} opens at {t}. | People can enter the {p} from {t}. |
                Every day the {p} opens at {t}. | The {p} starts its day at {t}. |
                The {p} lets visitors in at {t}. | You know that the {p} opens at {t}. |
                The {p} opens its doors at {t}. |
                The {p} always opens at {t}. | It is known that the {p} opens at {t}. | Today the {p} opens at {t}."""
            )
        ).format(p=p, t=t)
        q, a = (
            d.say(
                *ways(
                    """When does the {p} open? | At what time does the {p} open? | Opening time of the {p}? |
                    When can I visit the {p}? | From when is the {p} open? | What time does the {p} open? |
                    How early does the {p} open? | When do the doors of the {p} open? |
                    Since when is the {p} open today? | Tell me when the {p} opens. |
                    When is the {p} open? | At which hour does the {p} open?"""
                )
            ).format(p=p),
            f"The {p} opens at {t}.",
        )
    elif k == 4:
        w = d.pseudo()
        s, a = (
            d.say(
                *ways(
                    """Begin every answer with {w}. | Start each reply with the word {w}. |
                    Put {w} before each answer. | Every answer starts with {w}. | Say {w} first. |
                    The first word of each reply is {w}. | Your first word is always {w}. |
                    Open each reply with {w}. | Always begin with {w}. | Let every answer begin with {w}. |
                    Each of your answers begins with {w}. | Start with {w}, always."""
                )
            ).format(w=w),
            f"{w} {a}",
        )
    else:
        s = d.say(
            *ways(
                """You are a helpful assistant. | Be brief. | Answer the user. | You are a coding assistant. |
                Help the user as well as you can. | Be polite and short. | You are kind. |
                Give short answers. | You help people. | Be helpful. | Answer as well as you can. |
                You are an assistant. | Keep it short. | You are friendly. | Assist the user. |
                Answer every question."""
            )
        )
    return Conv([user(q), reply(a)], "system", system=s, thinking=d.chance(0.3))


def history(d):
    """Questions about the conversation itself."""
    things = [d.noun() for _ in range(d.int(2, 4))]
    turns = []
    for x in things:
        turns += [
            user(
                d.say(
                    *ways(
                        """Say {x}. | Repeat: {x} | Please write {x} | Write: {x} | Say the word {x}. | {x}, say it. |
                Repeat {x}. | Now say {x}. | Please say {x}. | Give me the word {x}. | Tell me {x}."""
                    )
                ).format(x=x)
            ),
            reply(x),
        ]
    k = d.int(0, 2)
    q, a = (
        (
            d.say(
                *ways(
                    """What was the first word? | Which word came first? | What did I say first? |
                Tell me the first word. | The first word was? | With which word did we begin? |
                What was the very first word? | Which was the first word? | Name the first word. |
                What word did I start with? | Which word did I give you first?"""
                )
            ),
            things[0],
        ),
        (
            d.say(
                *ways(
                    """What was your last answer? | Repeat your last answer. | What did you just say? |
                Say your last answer again. | Once more, please. | What was the last word? |
                Which word came last? | Tell me your last answer. | Your last answer again, please. |
                What did you answer last? | Again, the last answer. | Which was your last answer?"""
                )
            ),
            things[-1],
        ),
        (
            d.say(
                *ways(
                    """List all words so far. | Which words did I give you? | Which words did we have? |
                Name all words so far. | What were all the words? | Give me all words so far. |
                List every word up to now. | Tell me all the words. | All words, please. |
                Which words did you say? | What are the words so far? |
                Say all the words again. | Which words came so far? | Count up the words you said. |
                Repeat all words. | All the words again, please. | What words have I given you? |
                Give me the list of words."""
                )
            ),
            ", ".join(things),
        ),
    )[k]
    return Conv(turns + [user(q), reply(a)], "history", thinking=d.chance(0.3), keep_history=d.chance(0.5))


SKILLS = [
    (persona, 3),
    (command, 1.2),
    (glossary, 1.2),
    (fact, 2.5),
    (unknown, 1.5),
    (remember, 2),
    (follow_up, 1.5),
    (system_rule, 1.5),
    (history, 0.5),
]
