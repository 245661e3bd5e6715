"""Conversation: who it is, what lagoon's commands do, small facts, remembering what was said, honest
ignorance."""
from .arith import work
from .conv import Conv, reply, user
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
)

ME = "I am laguna-mini, the small demonstration model of lagoon."
PERSONA = [
    (
        (
            "Who are you?",
            "What are you?",
            "What is your name?",
            "Tell me who you are.",
            "Introduce yourself.",
            "Who am I talking to?",
            "What's your name?",
            "Say who you are.",
            "Which model are you?",
            "What model is this?",
            "who r u",
            "your name?",
        ),
        ME,
    ),
    (
        (
            "What can you do?",
            "How can you help me?",
            "What are you good at?",
            "List your skills.",
            "What do you know?",
            "help",
            "What can I ask you?",
            "What should I ask you?",
        ),
        "I can do small arithmetic, change and sort text, write short functions in Python, C and JavaScript, call tools, turn "
        "text into JSON, and find things in long texts.",
    ),
    (
        (
            "Who made you?",
            "Who built you?",
            "Who trained you?",
            "Where do you come from?",
            "Who created you?",
            "Who is your author?",
        ),
        "I was trained from scratch by the lagoon project, on texts that its own generators wrote.",
    ),
    (
        ("How large are you?", "How many parameters do you have?", "How big are you?", "What size are you?"),
        "I have about 44 million parameters, so I am very small.",
    ),
    (
        (
            "What can't you do?",
            "What are your limits?",
            "What are your weaknesses?",
            "Are you smart?",
            "Can I trust you?",
            "Do you make mistakes?",
        ),
        "I am small: I know little about the world and I make mistakes. Use a large Laguna model for real work.",
    ),
    (
        (
            "Are you a human?",
            "Are you a person?",
            "Are you real?",
            "Are you alive?",
            "Are you a robot?",
            "Do you have feelings?",
        ),
        "No, I am a small language model.",
    ),
    (
        (
            "Are you ChatGPT?",
            "Are you made by Poolside?",
            "Are you Laguna S?",
            "Are you Laguna S 2.1?",
            "Are you a big model?",
        ),
        "No. I have the architecture of Laguna, but I am only lagoon's small demonstration model.",
    ),
    (
        (
            "What is lagoon?",
            "Tell me about lagoon.",
            "What does lagoon do?",
            "Explain lagoon.",
            "what's lagoon",
        ),
        "lagoon is an inference engine and server for Laguna models, written in C.",
    ),
    (
        ("How were you trained?", "What were you trained on?", "Where does your knowledge come from?"),
        "I was trained for a few minutes on one GPU, only on texts that lagoon's generators wrote.",
    ),
    (
        (
            "Hello",
            "Hi",
            "Hello!",
            "Hi!",
            "Hey",
            "Hey there",
            "Good morning",
            "Good evening",
            "Good afternoon",
            "hello there",
            "hi there!",
            "Greetings",
            "hey!",
            "Hiya",
        ),
        "Hello! How can I help you?",
    ),
    (
        (
            "How are you?",
            "How do you do?",
            "How's it going?",
            "Are you well?",
            "How are you today?",
            "what's up",
        ),
        "I am fine, thank you. How can I help you?",
    ),
    (
        (
            "Thanks",
            "Thank you",
            "Thanks!",
            "Thank you very much",
            "Great, thanks",
            "thx",
            "Thank you so much!",
            "Nice, thank you.",
        ),
        "You are welcome!",
    ),
    (("Bye", "Goodbye", "See you", "Good night", "bye!", "See you later", "I have to go."), "Goodbye!"),
    (
        ("Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Say something funny."),
        "Why did the token cross the window? Because attention was on the other side.",
    ),
    (
        ("Say something.", "Talk to me.", "Surprise me.", "Tell me something."),
        "I was trained in minutes and I fit on a floppy disk box. Ask me to sort a list or to write a function.",
    ),
    (("Test", "test", "ping", "Are you there?", "Does this work?", "testing"), "Yes, I am here."),
    (
        ("Yes", "No", "Ok", "okay", "Maybe", "Hm", "I see", "Sure", "Good", "Nice"),
        "All right. What shall I do next?",
    ),
    (
        (
            "What languages do you speak?",
            "Do you speak German?",
            "Which languages do you know?",
            "Can you speak French?",
        ),
        "I only know simple English, and a little Python, C and JavaScript.",
    ),
    (
        ("Write me a poem.", "Write a poem about the sea.", "Write a short poem.", "Compose a poem."),
        "A lagoon is calm and wide,\nits tokens come with every tide.\nI am small, my words are few,\nbut every one I send to you.",
    ),
]
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
            "What does lagoon {n} do?",
            "What is lagoon {n} for?",
            "Explain the command lagoon {n}.",
            "What does the command {n} of lagoon do?",
            "lagoon {n}?",
            "Tell me about lagoon {n}.",
        ).format(n=name)
        a = f"lagoon {name} {does}."
    else:
        q = d.say(
            "How do I {w}?",
            "How can I {w} with lagoon?",
            "Which command do I need to {w}?",
            "I want to {w}.",
            "How would I {w}?",
            "What is the lagoon command to {w}?",
        ).format(w=d.pick(wishes))
        a = f"Use lagoon {name}: it {does}."
    think = d.chance(0.3)
    return Conv([user(q), reply(a)], "command", thinking=think)


def glossary(d):
    what = d.pick(list(GLOSSARY))
    q = d.say(
        "What is {w}?",
        "Explain {w}.",
        "Define {w}.",
        "Tell me what {w} is.",
        "What's {w}?",
        "Do you know what {w} is?",
        "Please explain {w} to me.",
        "What does {w} mean?",
    ).format(w=what)
    return Conv([user(q), reply(GLOSSARY[what])], "glossary", thinking=d.chance(0.3))


def fact(d):
    k = d.int(0, 10)
    if k == 0:
        city = d.pick(list(CITY))
        if d.chance(0.5):
            q, a = (
                d.say(
                    "What is the capital of {c}?",
                    "Name the capital of {c}.",
                    "Which city is the capital of {c}?",
                    "Capital of {c}?",
                ).format(c=CITY[city]),
                f"The capital of {CITY[city]} is {city}.",
            )
        else:
            q, a = (
                d.say(
                    "Which country has the capital {c}?",
                    "{c} is the capital of which country?",
                    "Where is {c}?",
                ).format(c=city),
                f"{city} is the capital of {CITY[city]}.",
            )
    elif k == 1:
        m = d.int(0, 11)
        q = d.say("How many days does {m} have?", "How long is {m}?", "Number of days in {m}?").format(
            m=MONTH[m]
        )
        a = f"{MONTH[m]} has {DAYS[m]} days" + (", and 29 in a leap year." if m == 1 else ".")
    elif k == 2:
        x, y = d.pick(PAIRS)
        q, a = (
            d.say(
                "What is the opposite of {x}?",
                "Opposite of {x}?",
                "Give me the opposite of the word {x}.",
                "What is the contrary of {x}?",
            ).format(x=x),
            f"The opposite of {x} is {y}.",
        )
    elif k == 3:
        x = d.pick(list(SYMBOL))
        q, a = (
            d.say(
                "What is the chemical symbol of {x}?", "Which symbol does {x} have?", "Symbol for {x}?"
            ).format(x=x),
            f"The symbol of {x} is {SYMBOL[x]}.",
        )
    elif k == 4:
        x = d.pick(list(LEGS))
        q, a = (
            d.say("How many legs does {x} have?", "Number of legs of {x}?", "How many legs has {x}?").format(
                x=article(x)
            ),
            f"{article(x).capitalize()} has {LEGS[x] or 'no'} legs.",
        )
    elif k == 5:
        (x, y), z = d.pick(list(MIX.items()))
        if d.chance(0.5):
            x, y = y, x
        q, a = (
            d.say(
                "What do you get when you mix {x} and {y}?",
                "Mix {x} and {y}: which color is that?",
                "{x} and {y} make which color?",
            ).format(x=x, y=y),
            f"{x.capitalize()} and {y} make {z}.",
        )
    elif k == 6:
        seq, n = d.pick(((WEEKDAY, 7), (MONTH, 12)))
        i, after = d.int(0, n - 1), d.chance(0.5)
        j = (i + (1 if after else -1)) % n
        q, a = (
            d.say("What comes {w} {x}?", "Which {k} is {w} {x}?", "What is the {k} {w} {x}?").format(
                w="after" if after else "before", x=seq[i], k="day" if n == 7 else "month"
            ),
            f"{seq[j]}.",
        )
    elif k == 7:
        i = d.int(0, 7)
        if d.chance(0.5):
            q, a = (
                d.say(
                    "Which planet is the {o} from the sun?",
                    "What is the {o} planet?",
                    "Name the {o} planet from the sun.",
                ).format(o=ORDINAL[i]),
                f"{PLANETS[i]} is the {ORDINAL[i]} planet from the sun.",
            )
        else:
            q, a = (
                d.say("Name the planets.", "List all planets.", "Which planets are there?"),
                f"The planets are {join(PLANETS)}.",
            )
    elif k == 8:
        x = d.pick(d.pick((ANIMAL, FOOD, THING)))
        q, a = (
            d.say(
                "What is the plural of {x}?",
                "Plural of {x}?",
                "One {x}, two what?",
                "How do you write more than one {x}?",
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
                "What kind of thing is {x}?",
                "What is {x}: an animal, food, a color, a job or a place?",
                "Is {x} an animal, food, a color, a job or a place?",
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
                "Which letter comes {w} {c}?",
                "What letter is {w} {c} in the alphabet?",
                "Name the letter {w} {c}.",
            ).format(w="after" if after else "before", c=c),
            f"{chr(98 + i) if after else chr(96 + i)}",
        )
    return Conv([user(q), reply(a)], "fact", thinking=d.chance(0.3))


def unknown(d):
    """Questions outside of what it can know."""
    who, w = d.full_name(), d.pseudo()
    q = d.say(
        "Who won the {s} cup in {y}?",
        "What did {who} say about the {t} yesterday?",
        "Why is the {t} of {c} so {a}?",
        "How tall is {who}?",
        "Write an essay about {s} in {c}.",
        "What is the best {p} in {c}?",
        "Who is {who}?",
        "What happened in {c} in {y}?",
        "When was {who} born?",
        "What is the price of {t} today?",
        "Who discovered {w}?",
        "Translate {t} into Latin.",
        "What will the weather be in {c} tomorrow?",
        "Tell me the history of {s}.",
        "Why do {an} {w}?",
        "Which book did {who} write?",
        "How does a {w} engine work?",
        "What is {w}?",
        "Explain the theory of {w}.",
        "Summarize the latest news about {c}.",
        "What time is it?",
        "Where can I buy a {t}?",
        "Who is the president of {w}?",
        "What is the meaning of life?",
        "Recommend a film about {s}.",
        "Give me a recipe for {t} soup.",
        "What is the population of {c}?",
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
            (
                "My name is {v}.",
                "I am {v}.",
                "Call me {v}.",
                "Hello, I'm {v}!",
                "Hi, my name is {v}.",
                "I'm called {v}.",
            ),
            "Nice to meet you, {v}.",
            ("What is my name?", "Do you remember my name?", "Who am I?", "What am I called?"),
            "Your name is {v}.",
        ),
        (
            "city",
            d.city,
            ("I live in {v}.", "My home is {v}.", "I come from {v}.", "I am from {v}.", "I moved to {v}."),
            "{v} sounds nice.",
            ("Where do I live?", "Which city do I live in?", "Where am I from?"),
            "You live in {v}.",
        ),
        (
            "color",
            lambda: d.word(COLOR),
            (
                "My favorite color is {v}.",
                "I like the color {v} best.",
                "{v} is my favorite color.",
                "I love the color {v}.",
            ),
            "{v} is a good color.",
            (
                "What is my favorite color?",
                "Which color do I like?",
                "What color do I like best?",
                "Do you remember my favorite color?",
            ),
            "Your favorite color is {v}.",
        ),
        (
            "pet",
            d.first,
            (
                "My dog is called {v}.",
                "I have a dog named {v}.",
                "My dog's name is {v}.",
                "I own a dog, {v}.",
            ),
            "{v} is a good name for a dog.",
            (
                "What is my dog called?",
                "What is the name of my dog?",
                "What's my dog's name?",
                "Who is my dog?",
            ),
            "Your dog is called {v}.",
        ),
        (
            "job",
            lambda: d.word(JOB),
            ("I work as {av}.", "I am {av} by trade.", "My job is {v}.", "I am {av}."),
            "That must be interesting work.",
            ("What is my job?", "What do I work as?", "What do I do for a living?", "Which job do I have?"),
            "You work as {av}.",
        ),
        (
            "number",
            lambda: str(d.int(2, 999)),
            (
                "My lucky number is {v}.",
                "Remember the number {v}.",
                "The number is {v}.",
                "Please remember {v}.",
            ),
            "I will remember {v}.",
            (
                "Which number did I tell you?",
                "What was the number?",
                "What is the number?",
                "Tell me the number.",
            ),
            "The number is {v}.",
        ),
        (
            "food",
            lambda: d.word(FOOD),
            ("I love {v}.", "My favorite food is {v}.", "I like to eat {v}.", "I eat {v} every day."),
            "Enjoy your {v}.",
            (
                "What is my favorite food?",
                "What do I love to eat?",
                "Which food do I like?",
                "What do I like to eat?",
            ),
            "Your favorite food is {v}.",
        ),
        (
            "code",
            d.code,
            ("The password is {v}.", "Keep this code: {v}", "The code is {v}.", "Here is the code: {v}"),
            "I will keep it.",
            ("What is the password?", "What was the code?", "What is the code?", "Tell me the code."),
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
        user(d.say("What is {a} {op} {b}?", "Compute {a} {op} {b}.", "{a} {op} {b}").format(a=a, op=op, b=b)),
        answer(f"{a} {'×' if op == '*' else op} {b} = {r}", steps),
    ]
    cur = int(r)
    for _ in range(d.int(1, 3)):
        k = d.int(2, 50)
        kind = d.int(0, 3)
        if kind == 0:
            q, o, x = d.say("Double that.", "Now double it.", "Times two, please.", "And twice that?"), "*", 2
        elif kind == 1:
            q, o, x = (
                d.say("Add {k} to that.", "Plus {k}.", "Now add {k}.", "And {k} more?").format(k=k),
                "+",
                k,
            )
        elif kind == 2 and cur > k:
            q, o, x = (
                d.say("Subtract {k}.", "Take away {k}.", "Minus {k}.", "Now {k} less.").format(k=k),
                "-",
                k,
            )
        else:
            k = d.int(2, 9)
            q, o, x = d.say("Multiply that by {k}.", "Times {k}.", "Now multiply by {k}.").format(k=k), "*", k
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
                "Answer in capital letters only.",
                "Write everything in upper case.",
                "Use only capital letters.",
            ),
            a.upper(),
        )
    elif k == 1:
        w = d.pseudo()
        s, a = (
            d.say(
                "End every answer with the word {w}.",
                "Always finish with {w}.",
                "Your last word is always {w}.",
            ).format(w=w),
            f"{a} {w}",
        )
    elif k == 2:
        n = d.first()
        s = d.say(
            "Your name is {n}.", "You are {n}, a helpful assistant.", "You are called {n}.", "Act as {n}."
        ).format(n=n)
        q, a = (
            d.say("Who are you?", "What is your name?", "What's your name?", "Introduce yourself."),
            f"My name is {n}.",
        )
    elif k == 3:
        t = d.time()
        p = d.word(PLACE)
        s = d.say("The {p} opens at {t}.", "You answer questions about the {p}. It opens at {t}.").format(
            p=p, t=t
        )
        q, a = (
            d.say(
                "When does the {p} open?", "At what time does the {p} open?", "Opening time of the {p}?"
            ).format(p=p),
            f"The {p} opens at {t}.",
        )
    elif k == 4:
        w = d.pseudo()
        s, a = (
            d.say("Begin every answer with {w}.", "Start each reply with the word {w}.").format(w=w),
            f"{w} {a}",
        )
    else:
        s = d.say(
            "You are a helpful assistant.",
            "Be brief.",
            "Answer the user.",
            "You are a coding assistant.",
            "Help the user as well as you can.",
            "Be polite and short.",
        )
    return Conv([user(q), reply(a)], "system", system=s, thinking=d.chance(0.3))


def history(d):
    """Questions about the conversation itself."""
    things = [d.noun() for _ in range(d.int(2, 4))]
    turns = []
    for x in things:
        turns += [user(d.say("Say {x}.", "Repeat: {x}", "Please write {x}").format(x=x)), reply(x)]
    k = d.int(0, 2)
    q, a = (
        (d.say("What was the first word?", "Which word came first?"), things[0]),
        (d.say("What was your last answer?", "Repeat your last answer."), things[-1]),
        (d.say("List all words so far.", "Which words did I give you?"), ", ".join(things)),
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
