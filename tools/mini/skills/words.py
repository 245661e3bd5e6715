"""Word lists, made-up words and the split into training and test material.

Everything that a skill draws goes through a Draw: it owns the random numbers and knows the split. Made-up
words, pairs of words, operands, names of tools and functions, and phrasings belong to the test set when their
checksum says so, and are then never trained on. The words of the lists themselves are vocabulary and not
split: a model cannot write a word of one token that it has never written.
"""
import random
import zlib

FIRST = """Ada Adam Aisha Alba Aldo Alma Amir Ana Andre Anika Anton Arno Asha Astrid Axel Aylin Bao Bea Bela
Ben Bilal Bjorn Bruno Carla Carlo Cem Chiara Clara Cora Dana Daria David Dina Dmitri Dora Edda Edith Egon
Elena Elias Elif Ella Emil Emma Enzo Erik Esme Esra Eva Farid Fatima Felix Fern Fiona Flora Frida Gabor Gina
Greta Gustav Hana Hans Heidi Hugo Ian Ida Igor Ilse Imani Ines Ingrid Iris Ivan Jana Jasper Jin Joao Jonas
Jorge Juan Julia Kai Karim Karl Kenji Kira Klaus Kofi Lara Lars Laura Leila Lena Leo Liam Lin Lina Livia Lola
Luca Lucy Luis Luz Maja Malik Mara Marco Maria Marta Mateo Max Maya Mei Mia Mika Milan Mina Mira Mona Nadia
Nils Nina Noah Nora Olaf Olga Omar Oscar Otto Pablo Paul Pia Priya Quinn Rafa Ravi Rita Rosa Ruth Sami Sara
Sofia Sven Tara Tariq Theo Tina Tom Uma Vera Viktor Yara Yuki Yusuf Zara Zoe""".split()
LAST = """Abbot Adler Alvarez Amato Bakker Barros Becker Berg Bianchi Braun Castro Chen Costa Dahl Diaz Duarte
Eriksen Farkas Ferrari Fischer Fontana Garcia Gomez Haas Hansen Horvat Ibrahim Ito Jansen Jensen Kaya Keller
Khan Klein Kovacs Kumar Larsen Leroy Lopez Marino Martin Mendes Meyer Moreau Nagy Nakata Novak Okafor Olsen
Park Patel Peeters Popov Ramos Ricci Rossi Russo Santos Sato Silva Singh Sousa Suzuki Tanaka Toth Vogel Weber
Wolf Yilmaz Zhang""".split()
CITY = {
    "Athens": "Greece",
    "Ankara": "Turkey",
    "Bangkok": "Thailand",
    "Beijing": "China",
    "Belgrade": "Serbia",
    "Berlin": "Germany",
    "Bern": "Switzerland",
    "Bogota": "Colombia",
    "Brasilia": "Brazil",
    "Brussels": "Belgium",
    "Bucharest": "Romania",
    "Budapest": "Hungary",
    "Cairo": "Egypt",
    "Canberra": "Australia",
    "Copenhagen": "Denmark",
    "Dakar": "Senegal",
    "Dublin": "Ireland",
    "Hanoi": "Vietnam",
    "Havana": "Cuba",
    "Helsinki": "Finland",
    "Jakarta": "Indonesia",
    "Kampala": "Uganda",
    "Kyiv": "Ukraine",
    "Lima": "Peru",
    "Lisbon": "Portugal",
    "London": "the United Kingdom",
    "Luanda": "Angola",
    "Madrid": "Spain",
    "Manila": "the Philippines",
    "Montevideo": "Uruguay",
    "Nairobi": "Kenya",
    "Oslo": "Norway",
    "Ottawa": "Canada",
    "Paris": "France",
    "Prague": "Czechia",
    "Quito": "Ecuador",
    "Rabat": "Morocco",
    "Reykjavik": "Iceland",
    "Riga": "Latvia",
    "Rome": "Italy",
    "Santiago": "Chile",
    "Seoul": "South Korea",
    "Sofia": "Bulgaria",
    "Stockholm": "Sweden",
    "Tallinn": "Estonia",
    "Tirana": "Albania",
    "Tokyo": "Japan",
    "Tunis": "Tunisia",
    "Vienna": "Austria",
    "Vilnius": "Lithuania",
    "Warsaw": "Poland",
    "Zagreb": "Croatia",
}
CITIES = list(CITY)
TOWN = """Aachen Bergen Bilbao Bologna Bremen Bristol Cadiz Cork Dresden Essen Faro Galway Geneva Genoa Ghent
Graz Haifa Izmir Kobe Krakow Leeds Lille Linz Lyon Malmo Marseille Milan Mumbai Munich Nantes Naples Nice
Odense Osaka Oxford Perth Pisa Porto Rosario Rouen Salerno Seville Sydney Tampere Toledo Toronto Trieste Turin
Turku Utrecht Valencia Venice Verona Zurich""".split()
ANIMAL = """ant badger bat bear beaver bee bison camel cat cow crab crane deer dog dolphin donkey duck eagle
eel elk falcon ferret finch fox frog gecko goat goose hamster hare hawk hedgehog heron horse ibis jackal koala
lamb lemur lion lizard llama lynx magpie mole moose moth mouse newt otter owl panda parrot pigeon pony puffin
rabbit raven robin salmon seal sheep snail sparrow spider squid swan tiger toad trout turtle walrus wasp whale
wolf wombat yak zebra""".split()
FOOD = """apple apricot banana basil bean beet bread butter cabbage carrot cheese cherry coconut coffee cookie
corn cream date egg fig flour garlic ginger grape honey kiwi leek lemon lentil lettuce lime mango melon milk
mint muffin mushroom noodle nut oat olive onion orange papaya pasta peach pear pepper pickle plum potato
pumpkin radish raisin rice salad salt soup spinach sugar tea tomato turnip vanilla walnut yogurt""".split()
THING = """anchor backpack basket battery bell bench blanket bottle bowl box bracelet bridge broom brush
bucket button cable camera candle cap carpet chair clock coat coin comb compass cup curtain desk door drum
envelope fan flag flute fork frame glove guitar hammer hat helmet jacket jar kettle key kite knife ladder lamp
lantern lens magnet map marble mask mirror mug nail needle notebook oar paddle paint pen pencil piano pillow
pin pipe plate pot printer purse puzzle radio ring rope ruler scarf screw shelf shirt shoe shovel sock sofa
spoon stamp stool stove table tape tent ticket towel toy tray umbrella vase violin wallet watch wheel whistle
window zipper""".split()
COLOR = (
    "amber azure beige black blue brown coral crimson gold gray green indigo ivory jade lilac navy olive orange pink "
    "purple red silver tan teal turquoise violet white yellow"
)
COLOR = COLOR.split()
ADJ = """able bold brave brief bright broad calm clean clear clever cold cool crisp dark deep dry dull eager
early easy fair fast fine firm flat fresh full gentle glad good grand great happy hard heavy honest huge
humble keen kind large late light little lively long loud lucky mild narrow neat new nice noble odd old open
pale plain proud pure quick quiet rare ready rich rough round safe sharp short shy silent simple slim slow
small smart smooth soft solid sour steady still strong sweet swift tall thick thin tidy tiny tough warm weak
wet wide wild wise young""".split()
PLACE = """attic bakery barn basement beach cabin cafe castle cellar church clinic factory farm forest garage
garden gallery garret harbor hospital hotel island kitchen laboratory library lighthouse market meadow mill
mine museum office orchard palace park pier port quarry restaurant river school shop stable stadium station
studio tavern temple theater tower tunnel valley village warehouse workshop""".split()
MONTH = "January February March April May June July August September October November December".split()
DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
WEEKDAY = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ORDINAL = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
JOB = """architect baker barber builder butcher carpenter chemist cook dentist doctor driver editor engineer
farmer fisher gardener guide journalist judge lawyer librarian mason mechanic miner musician nurse painter
pilot plumber poet potter sailor singer tailor teacher waiter weaver writer""".split()
SUBJECT = """biology chemistry chess dance drawing geography geometry grammar history law logic math medicine
music painting physics poetry pottery sailing statistics swimming tennis yoga""".split()
ONSET = "b br bl c ch cl cr d dr f fl fr g gl gr h j k kl l m n p pl pr qu r s sh sk sl sn sp st t th tr v w y z".split()
NUCLEUS = "a a e e i i o o u u ai ea ee ia io oa oo ou".split()
CODA = [
    "",
    "",
    "",
    "b",
    "ck",
    "d",
    "g",
    "k",
    "l",
    "ll",
    "m",
    "n",
    "nd",
    "ng",
    "nt",
    "p",
    "r",
    "rk",
    "s",
    "sh",
    "st",
    "t",
    "x",
]


def fragment(r):
    """Two to five letters out of the middle of a word."""
    w = r.choice(r.choice((FIRST, LAST, TOWN, ANIMAL, FOOD, THING, COLOR, ADJ, PLACE, JOB, SUBJECT))).lower()
    n = min(len(w), r.randint(2, 5))
    at = r.randint(0, len(w) - n)
    return w[at : at + n]


def ways(text):
    """Phrasings written between bars."""
    return tuple(" ".join(p.split()) for p in text.split("|"))


def held_out(*key, one_in=12):
    """Whether this item belongs to the test set."""
    return zlib.crc32("\t".join(map(str, key)).encode()) % one_in == 0


class Draw:
    """Random choices for one split ("train" or "test"), reproducible from `seed`."""

    def __init__(self, seed, split="train"):
        self.r = random.Random(seed)
        self.test = split == "test"

    def word(self, words):
        return self.r.choice(words)

    def words(self, words, n):
        return self.r.sample(words, n)

    def say(self, *phrasings):
        """One of the phrasings, each a template of its own: a test draw takes held-out ones where there are
        some."""
        part = [p for p in phrasings if held_out("say", p, one_in=8) == self.test]
        return self.r.choice(part or phrasings)

    def fresh(self, make, *label):
        """Draw from make() until the item is on this split's side."""
        while True:
            item = make()
            if held_out(*label, item) == self.test:
                return item

    def int(self, lo, hi):
        return self.r.randint(lo, hi)

    def chance(self, p):
        return self.r.random() < p

    def pick(self, seq):
        return self.r.choice(seq)

    def number(self, hi):
        """An integer in 0..hi, every length equally likely."""
        return self.r.randint(0, min(hi, 10 ** self.r.randint(1, len(str(hi))) - 1))

    def pseudo(self):
        """A made-up lower-case word: syllables, or pieces of real words."""
        r = self.r

        def make():
            if r.random() < 0.4:
                return "".join(fragment(r) for _ in range(r.choice((1, 2, 2, 3))))
            n = r.choice((1, 2, 2, 2, 3))
            return "".join(
                r.choice(ONSET)
                + r.choice(NUCLEUS)
                + (r.choice(CODA) if k == n - 1 or r.random() < 0.3 else "")
                for k in range(n)
            )

        return self.fresh(make, "pseudo")

    def pair(self, first, second):
        """Two words of lists, as a held-out or a trained combination."""
        return self.fresh(lambda: f"{self.r.choice(first)} {self.r.choice(second)}", "pair")

    def first(self):
        return self.word(FIRST) if self.r.random() < 0.8 else self.pseudo().capitalize()

    def full_name(self):
        if self.r.random() < 0.7:
            return self.pair(FIRST, LAST)
        return f"{self.first()} {self.pseudo().capitalize()}"

    def city(self):
        x = self.r.random()
        return self.word(CITIES) if x < 0.5 else self.word(TOWN) if x < 0.85 else self.pseudo().capitalize()

    def noun(self):
        return self.word(self.r.choice((ANIMAL, FOOD, THING)))

    def thing(self):
        """A noun with an adjective or colour in front."""
        return self.pair(ADJ if self.r.random() < 0.6 else COLOR, self.r.choice((ANIMAL, FOOD, THING)))

    def date(self):
        m = self.r.randrange(12)
        return f"{self.r.randint(1, DAYS[m])} {MONTH[m]}"

    def iso_date(self):
        m = self.r.randrange(12)
        return f"{self.r.randint(2019, 2031)}-{m + 1:02d}-{self.r.randint(1, DAYS[m]):02d}"

    def time(self):
        return f"{self.r.randint(0, 23):02d}:{self.r.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02d}"

    def price(self):
        return round(self.r.uniform(0.5, 300), 2)

    def email(self):
        return f"{self.first().lower()}@{self.pseudo()}.{self.r.choice(('com', 'org', 'net', 'io'))}"

    def path(self):
        parts = [self.pick((self.pseudo(), self.noun())) for _ in range(self.r.randint(1, 3))]
        return (
            self.pick(("", "src/", "docs/", "/tmp/", "data/"))
            + "/".join(parts)
            + "."
            + self.pick(("txt", "md", "py", "c", "json", "csv", "log", "js"))
        )

    def code(self):
        """An identifier such as KX-4821."""
        letters = "".join(self.r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(2))
        return f"{letters}-{self.r.randint(100, 9999)}"


def plural(noun):
    if noun in ("deer", "salmon", "sheep", "trout", "squid"):
        return noun
    if noun in ("mouse", "goose", "wolf", "knife", "shelf", "scarf"):
        return {
            "mouse": "mice",
            "goose": "geese",
            "wolf": "wolves",
            "knife": "knives",
            "shelf": "shelves",
            "scarf": "scarves",
        }[noun]
    if noun.endswith(("s", "x", "ch", "sh")) or noun in ("tomato", "potato", "mango"):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def article(word):
    return f"{'an' if word[0] in 'aeiouAEIOU' else 'a'} {word}"


def join(items):
    items = [str(x) for x in items]
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
