"""Parameters of made-up tools: named ones with their ways to hand a value over, and ones with names of no list."""
from .words import ADJ, COLOR, MONTH, PLACE, SUBJECT, THING, WEEKDAY, join, ways

ENUMS = [
    ("unit", ("celsius", "fahrenheit")),
    ("priority", ("low", "medium", "high")),
    ("format", ("json", "csv", "xml")),
    ("color", tuple(COLOR[:6])),
    ("size", ("small", "medium", "large")),
    ("order", ("ascending", "descending")),
    ("mode", ("fast", "safe", "dry")),
    ("status", ("open", "closed", "all")),
    ("day", tuple(WEEKDAY)),
    ("language", ("english", "german", "french", "spanish")),
    ("level", ("debug", "info", "error")),
    ("role", ("admin", "editor", "viewer")),
    ("period", ("day", "week", "month")),
]

# name, JSON type, what it says in the schema, value, phrases that hand it over
PARAMS = [
    (
        "city",
        "string",
        "Name of the city",
        lambda d: d.city(),
        ways(
            """in {v} | for {v} | for the city {v} | of {v} | where the city is {v} | near {v} |
            around {v} | in the city of {v} | with {v} as the city | within {v} |
            close to {v} | by the city {v} | having the city {v} | over in {v} |
            for {v} as the city | that is in {v}"""
        ),
    ),
    (
        "location",
        "string",
        "Place or city",
        lambda d: d.city(),
        ways(
            """in {v} | at {v} | for {v} | near {v} | around {v} | with the location {v} |
            located in {v} | from {v} | over in {v} | close to {v} |
            for the place {v} | where {v} is the location | near to {v} | with a location of {v} |
            at the location {v} | in the area of {v} | somewhere in {v} | located at {v} | in or near {v} |
            at a place in {v} |
            by {v} | within {v} | where the location is {v} | for the location {v} |
            that is in {v} | with {v} as the location | placed in {v}"""
        ),
    ),
    (
        "name",
        "string",
        "Name",
        lambda d: d.full_name(),
        ways(
            """with the name {v} | called {v} | named {v} | for {v} | under the name {v} |
            by the name of {v} | that is called {v} | of {v} | where the name is {v} |
            known as {v} |
            answering to {v} | with a name of {v} | by the name {v} | having the name {v} |
            known by the name {v} |
            with {v} as the name | going by {v} | in the name of {v} | using the name {v} |
            whose name is {v} | that goes by {v} | listed as {v}"""
        ),
    ),
    (
        "title",
        "string",
        "Title",
        lambda d: d.thing(),
        ways(
            """with the title "{v}" | titled "{v}" | called "{v}" | under the title "{v}" |
            with "{v}" as the title | headed "{v}" | that is titled "{v}" | by the title "{v}" |
            named "{v}" | whose title is "{v}" |
            with a title of "{v}" | having the title "{v}" | and title it "{v}" |
            which is called "{v}" """
        ),
    ),
    (
        "to",
        "string",
        "Receiver",
        lambda d: d.pick((d.first, d.email))(),
        ways(
            """to {v} | for {v} | addressed to {v} | and send it to {v} | going to {v} |
            with {v} as the receiver | meant for {v} | directed to {v} | that goes to {v} |
            handing it to {v} | to the attention of {v} | as a message to {v} | straight to {v} |
            and pass it to {v} |
            sent to {v} | for the receiver {v} | with the receiver {v} | reaching {v} |
            and let {v} have it | received by {v} | delivered to {v}"""
        ),
    ),
    (
        "email",
        "string",
        "Email address",
        lambda d: d.email(),
        ways(
            """with the email {v} | using {v} | and the address {v} | under {v} | via {v} |
            with the address {v} | by mail to {v} | at {v} | for the email {v} |
            and the email {v}"""
        ),
    ),
    (
        "path",
        "string",
        "Path of the file",
        lambda d: d.path(),
        ways(
            """at {v} | with path {v} | from {v} | {v} | in {v} | with the path {v} | under {v} |
            located at {v} |
            found at {v} | for {v} | on {v} | stored in {v}"""
        ),
    ),
    (
        "query",
        "string",
        "What to look for",
        lambda d: d.thing(),
        ways(
            """for "{v}" | matching "{v}" | with the query "{v}" | about "{v}" | on "{v}" |
            looking for "{v}" | with "{v}" as the query | containing "{v}" |
            where the query is "{v}" | searching "{v}" """
        ),
    ),
    (
        "text",
        "string",
        "The text",
        lambda d: f"{d.pseudo()} {d.noun()} {d.pseudo()}",
        ways(
            """with the text "{v}" | saying "{v}" | : "{v}" | that says "{v}" |
            with "{v}" as the text | reading "{v}" | and write "{v}" | containing "{v}" |
            where the text is "{v}" | which reads "{v}" |
            with text "{v}" | with the words "{v}" | putting "{v}" | and say "{v}" |
            whose text is "{v}" | for the text "{v}" | using the text "{v}" """
        ),
    ),
    (
        "subject",
        "string",
        "Subject line",
        lambda d: d.thing(),
        ways(
            """with the subject "{v}" | about "{v}" | on the subject "{v}" |
            with "{v}" as the subject | under the subject "{v}" | concerning "{v}" |
            regarding "{v}" | whose subject is "{v}" | titled "{v}" |
            dealing with "{v}" | with a subject of "{v}" | entitled "{v}" | on the topic "{v}" |
            bearing the subject "{v}" | that is about "{v}" | which is about "{v}" |
            with the heading "{v}"  |
            with subject "{v}" | for the subject "{v}" | where the subject is "{v}" | on "{v}" |
            by the subject "{v}" | using the subject "{v}" """
        ),
    ),
    (
        "date",
        "string",
        "Date as YYYY-MM-DD",
        lambda d: d.iso_date(),
        ways(
            """on {v} | for {v} | dated {v} | with the date {v} | by {v} | as of {v} | of {v} |
            from {v} | due {v} | that is dated {v} | set for {v}"""
        ),
    ),
    (
        "time",
        "string",
        "Time as HH:MM",
        lambda d: d.time(),
        ways(
            """at {v} | for {v} o'clock | by {v} | starting at {v} | with the time {v} | from {v} |
            set for {v} | around {v} | at {v} sharp | for {v}"""
        ),
    ),
    (
        "month",
        "string",
        "Month",
        lambda d: d.pick(MONTH),
        ways(
            """in {v} | for {v} | of {v} | during {v} | by {v} | within {v} | with the month {v} |
            from {v} | this {v}"""
        ),
    ),
    (
        "id",
        "integer",
        "Number of the entry",
        lambda d: d.int(1, 99999),
        ways(
            """with id {v} | number {v} | #{v} | with the number {v} | with the id {v} |
            of number {v} | that has id {v} | whose id is {v} | no. {v} | under id {v}"""
        ),
    ),
    (
        "count",
        "integer",
        "How many",
        lambda d: d.int(1, 50),
        ways(
            """{v} times | with count {v} | {v} times over | with a count of {v} | exactly {v} times |
            repeated {v} times | in {v} copies | {v} times in all | for a count of {v}"""
        ),
    ),
    (
        "limit",
        "integer",
        "Largest number of results",
        lambda d: d.int(1, 100),
        ways(
            """at most {v} | with limit {v} | limited to {v} | up to {v} | with a limit of {v} |
            no more than {v} | {v} at most | stopping at {v} | the first {v} | capped at {v}"""
        ),
    ),
    (
        "days",
        "integer",
        "Number of days",
        lambda d: d.int(1, 30),
        ways(
            """for {v} days | over {v} days | of {v} days | lasting {v} days | within {v} days |
            for the next {v} days | {v} days long | during {v} days | with {v} days"""
        ),
    ),
    (
        "minutes",
        "integer",
        "Minutes",
        lambda d: d.int(1, 240),
        ways(
            """for {v} minutes | of {v} minutes | over {v} minutes | lasting {v} minutes |
            within {v} minutes | {v} minutes long | for the next {v} minutes | with {v} minutes |
            in {v} minutes"""
        ),
    ),
    (
        "quantity",
        "integer",
        "Quantity",
        lambda d: d.int(1, 99),
        ways(
            """with quantity {v} | {v} pieces | with a quantity of {v} | in a quantity of {v} |
            of {v} pieces | {v} units | for {v} pieces | with {v} pieces | {v} of them"""
        ),
    ),
    (
        "age",
        "integer",
        "Age in years",
        lambda d: d.int(1, 99),
        ways(
            """aged {v} | with age {v} | of age {v} | who is {v} years old | with an age of {v} |
            {v} years old | at the age of {v} | for age {v} | for the age {v} |
            with {v} as the age | having the age {v} | of {v} years"""
        ),
    ),
    (
        "port",
        "integer",
        "Port number",
        lambda d: d.int(80, 65000),
        ways(
            """on port {v} | with port {v} | through port {v} | at port {v} | using port {v} |
            over port {v} | via port {v} | listening on port {v} |
            port {v} | on the port {v} | where the port is {v} | that uses port {v} |
            behind port {v} | to port {v} | with the port {v} | with {v} as the port"""
        ),
    ),
    (
        "price",
        "number",
        "Price",
        lambda d: d.price(),
        ways(
            """for {v} euros | with the price {v} | at {v} | priced at {v} | at a price of {v} |
            costing {v} euros | for a price of {v} | at the price {v} | worth {v} euros |
            with a price of {v}"""
        ),
    ),
    (
        "amount",
        "number",
        "Amount",
        lambda d: d.price(),
        ways(
            """over {v} | with amount {v} | of {v} | with an amount of {v} | for the amount {v} |
            amounting to {v} | in the amount of {v} | to the amount of {v} |
            with {v} as the amount | totaling {v}"""
        ),
    ),
    (
        "ratio",
        "number",
        "A ratio",
        lambda d: round(d.r.random(), 2),
        ways(
            """with ratio {v} | at a ratio of {v} | with a ratio of {v} | using the ratio {v} |
            by a ratio of {v} | with {v} as the ratio | for a ratio of {v} | at ratio {v} |
            keeping a ratio of {v} |
            where the ratio is {v} | set to a ratio of {v} | with {v} for ratio"""
        ),
    ),
    ("verbose", "boolean", "Print details", None, ("with details", "without details")),
    ("recursive", "boolean", "Descend into folders", None, ("recursively", "not recursively")),
    ("urgent", "boolean", "Whether it is urgent", None, ("urgently", "without urgency")),
    ("public", "boolean", "Visible to all", None, ("publicly", "privately")),
    (
        "tags",
        "array",
        "List of tags",
        lambda d: [d.pick((d.noun, d.pseudo))() for _ in range(d.int(1, 4))],
        ways(
            """with the tags {v} | tagged {v} | with {v} as tags | under the tags {v} | labeled {v} |
            and tag it {v} | using the tags {v} | with tags {v} | that has the tags {v}"""
        ),
    ),
    (
        "names",
        "array",
        "List of names",
        lambda d: [d.first() for _ in range(d.int(1, 4))],
        ways(
            """with {v} | for {v} | together with {v} | including {v} | and {v} | with the names {v} |
            naming {v} | among {v} | listing {v} |
            for the names {v} | with names {v} | of {v}"""
        ),
    ),
]
GENERIC = (
    "with {n} {v}",
    "{n} {v}",
    "with {n} = {v}",
    "using {n} {v}",
    "where {n} is {v}",
    "and {n} {v}",
    "{n}: {v}",
    "set {n} to {v}",
    "with the {n} {v}",
    "the {n} is {v}",
    "use {v} as {n}",
    "with {v} as the {n}",
    "taking {v} for {n}",
    "{n}={v}",
    "the {n} should be {v}",
    "whose {n} is {v}",
    "with a {n} of {v}",
    "for the {n} {v}",
    "having the {n} {v}",
) + ways(
    """with {n} set to {v} | giving {v} as {n} | and {v} as the {n} | with {n} {v} given | {n} being {v} |
    let {n} be {v} | with {v} for {n} | the {n} being {v} | where the {n} is {v} | {v} as {n} | under the {n} {v} |
    of {n} {v} | that has {n} {v} | passing {v} as {n} | with {n} at {v} | pick {v} for the {n}"""
)


class Param:
    def __init__(self, d, taken):
        x = d.r.random()
        self.enum = None
        if x < 0.55:
            self.name, self.type, self.about, make, self.phrases = d.pick(PARAMS)
            self.make = make or (lambda d: d.chance(0.6))
        elif x < 0.7:
            self.name, self.enum = d.pick(ENUMS)
            self.type, self.about, self.phrases = "string", f"The {self.name}", GENERIC
            self.make = lambda d: d.pick(self.enum)
        else:
            base = d.pick(
                (
                    lambda: f"{d.word(ADJ)}_{d.word(THING)}",
                    lambda: f"{d.word(THING)}_{d.pick(('id', 'name', 'code', 'size'))}",
                    d.pseudo,
                    lambda: d.word(PLACE),
                    lambda: d.word(SUBJECT),
                    lambda: d.word(THING),
                )
            )()
            self.name, self.phrases = base, GENERIC
            self.type = d.pick(("string", "string", "integer", "number", "boolean", "array"))
            self.about = f"The {base.replace('_', ' ')}"
            self.make = {
                "string": lambda d: d.pick((d.pseudo, d.noun, d.code, d.thing, d.first))(),
                "integer": lambda d: d.int(0, 9999),
                "number": lambda d: d.price(),
                "boolean": lambda d: d.chance(0.5),
                "array": lambda d: [d.pick((d.noun, d.pseudo))() for _ in range(d.int(1, 3))],
            }[self.type]
        if self.name in taken:
            self.name = f"{self.name}_{d.pseudo()}"
            self.phrases = GENERIC
        self.plain = self.type == "boolean" and self.phrases is not GENERIC

    def schema(self, d):
        s = {"type": self.type}
        if self.type == "array":
            s["items"] = {"type": "string"}
        if self.enum:
            s["enum"] = list(self.enum)
        if d.chance(0.7):
            s["description"] = self.about
        return s

    def say(self, d, v):
        label = self.name.replace("_", " ")
        if self.plain:
            return self.phrases[0 if v else 1]
        shown = join(v) if isinstance(v, list) else str(v).lower() if isinstance(v, bool) else str(v)
        # a label that the tool's own phrases lack tells parameters of one kind apart
        phrases = GENERIC if d.chance(0.35) else self.phrases
        return d.say(*(p.replace("{n}", label) for p in phrases)).format(v=shown)
