"""The named fields of the JSON skill: type, value, and the ways in which a text hands the value over.

Verbs are shared between fields on purpose: what "you reach Ada at" hands over is told by the value. {n} is the
person or thing the record is about, {v} the value, {av} the value with its article, {yes} "" or "not ".
"""
from .words import COLOR, JOB, PLACE, SUBJECT, WEEKDAY, ways

FIELDS = [
    (
        "name",
        "string",
        lambda d: d.full_name(),
        ways(
            """{n} is called {v} | the name is {v} | name {v} | {n} goes by {v} | known as {v} | the full name is {v} |
            named {v} | by the name of {v} | called {v} | {v} by name | {n} signs as {v} | registered as {v} |
            introduced as {v} | listed under {v} | this is {v} | we call {n} {v} | {n} answers to {v} | it says {v}"""
        ),
    ),
    (
        "age",
        "integer",
        lambda d: d.int(1, 99),
        ways(
            """{n} is {v} years old | aged {v} | {v} years of age | {n} turned {v} | {v} years old |
            at the age of {v} | {n} has reached {v} years | the age is {v} | age {v} | born {v} years ago |
            {n} counts {v} years | {n} just became {v} | {v} years young | {n} lived for {v} years | {v} years now |
            {n} has seen {v} years | {v} in years"""
        ),
    ),
    (
        "city",
        "string",
        lambda d: d.city(),
        ways(
            """{n} lives in {v} | from {v} | in the city {v} | {n} comes from {v} | based in {v} | living in {v} |
            {n} has a home in {v} | at home in {v} | {n} moved to {v} | a resident of {v} | the city is {v} |
            {n} grew up in {v} | {n} stays in {v} | {n} settled in {v} | with an address in {v} |
            you find {n} in {v} | {v} is home to {n} | out of {v} | {n} hails from {v} | located in {v} |
            {n} resides in {v} | in {v}"""
        ),
    ),
    (
        "job",
        "string",
        lambda d: d.word(JOB),
        ways(
            """{n} works as {av} | {av} by trade | {n} is {av} | employed as {av} | working as {av} |
            {n} earns a living as {av} | the job is {v} | job {v} | trained as {av} | {n} became {av} |
            {av} by profession | hired as {av} | {n} has the job of {av} | who is {av} | the profession is {v} |
            occupation {v} | busy as {av} | {n} serves as {av} | known as {av} | listed as {av}"""
        ),
    ),
    (
        "email",
        "string",
        lambda d: d.email(),
        ways(
            """the email is {v} | reachable at {v} | mail {v} | email {v} | write to {v} | mail goes to {v} |
            send mail to {v} | {n} reads {v} | contact {v} | contact {n} at {v} | {n} can be reached at {v} |
            you reach {n} under {v} | answers come from {v} | the mailbox is {v} | inbox {v} | messages to {v} |
            the address {v} | drop a line to {v} | {n} uses {v} | available at {v} | get in touch via {v} | ask {v} |
            reach {n} on {v} | {n} answers {v} | found under {v} | by mail at {v}"""
        ),
    ),
    (
        "phone",
        "string",
        lambda d: f"{d.int(100, 999)}-{d.int(1000, 9999)}",
        ways(
            """the phone number is {v} | phone {v} | call {v} | telephone {v} | tel {v} | dial {v} | ring {v} |
            ring {n} at {v} | {n} can be reached at {v} | contact {n} at {v} | contact {v} |
            you reach {n} under {v} | available at {v} | get in touch via {v} | {n} picks up at {v} |
            {n} answers {v} | the line is {v} | phone number {v} | by phone at {v} | text {v} | reach {n} on {v} |
            give {v} a ring | mobile {v} | messages to {v} | found under {v} | ask {v} | {n} uses {v}"""
        ),
    ),
    (
        "color",
        "string",
        lambda d: d.word(COLOR),
        ways(
            """the color is {v} | {n} likes {v} | colored {v} | in {v} | painted {v} | {v} in color | of {v} color |
            {n} prefers {v} | color {v} | dyed {v} | it comes in {v} | with a {v} finish | it looks {v} |
            {n} wears {v} | {n} chose {v} | a shade of {v} | covered in {v} | {v} all over | {n} is fond of {v} |
            {n} enjoys {v}"""
        ),
    ),
    (
        "price",
        "number",
        lambda d: d.price(),
        ways(
            """it costs {v} euros | for {v} euros | it costs {v} | {v} euros | sold for {v} euros | priced at {v} |
            priced at {v} euros | the price is {v} euros | at {v} euros each | it sells for {v} euros |
            {n} pays {v} euros | yours for {v} euros | worth {v} euros | the bill is {v} euros |
            a price tag of {v} euros | {v} euros in total | bought for {v} euros | it goes for {v} euros |
            {n} asks {v} euros | charged at {v} euros | available for {v} euros | a cost of {v} euros"""
        ),
    ),
    (
        "quantity",
        "integer",
        lambda d: d.int(1, 500),
        ways(
            """the quantity is {v} | {v} pieces | {v} of them | {v} units | {v} in stock | quantity {v} |
            {n} ordered {v} pieces | a total of {v} pieces | {v} items | a batch of {v} | we need {v} of them |
            {v} are left | a set of {v} | there are {v} of them | {v} copies | {v} in number | {n} wants {v} units |
            a box of {v} | {v} in the box | {v} on the shelf | a supply of {v}"""
        ),
    ),
    (
        "weight",
        "number",
        lambda d: round(d.r.uniform(0.1, 90), 1),
        ways(
            """the weight is {v} kg | it weighs {v} kg | {v} kg heavy | weight {v} kg | {n} weighs {v} kg | {v} kg |
            a load of {v} kg | {v} kg in weight | weighing {v} kg | the scale shows {v} kg |
            with a mass of {v} kg | it is {v} kg heavy | {v} kg on the scale | at {v} kg | as heavy as {v} kg |
            the load is {v} kg | {n} brings {v} kg | rated {v} kg | it comes to {v} kg | it weighed {v} kg | {v} kg to carry |
            heavy at {v} kg | {n} lifts {v} kg | {n} carries {v} kg"""
        ),
    ),
    (
        "date",
        "string",
        lambda d: d.pick((d.iso_date, d.date))(),
        ways(
            """the date is {v} | on {v} | dated {v} | date {v} | the date was {v} | it happened on {v} |
            scheduled for {v} | planned for {v} | due on {v} | due {v} | as of {v} | signed on {v} | since {v} |
            from {v} on | it falls on {v} | booked for {v} | set for {v} | until {v} | valid from {v} |
            arriving {v} | come on {v} | no later than {v} | by {v} | {v} works best"""
        ),
    ),
    (
        "time",
        "string",
        lambda d: d.time(),
        ways(
            """the time is {v} | at {v} | it starts at {v} | time {v} | starting at {v} | from {v} | it begins at {v} |
            begins {v} | at {v} sharp | around {v} | the clock shows {v} | be there at {v} | it opens at {v} |
            scheduled for {v} | planned for {v} | set for {v} | booked for {v} | by {v} | it was {v} |
            doors open at {v} | no later than {v} | the hour is {v} | come at {v} | {v} works best | until {v}"""
        ),
    ),
    (
        "place",
        "string",
        lambda d: d.word(PLACE),
        ways(
            """the place is the {v} | at the {v} | it takes place in the {v} | in the {v} | inside the {v} |
            by the {v} | it happens at the {v} | we meet at the {v} | meet at the {v} | held in the {v} |
            located in the {v} | come to the {v} | the venue is the {v} | you find it in the {v} |
            it was seen at the {v} | stored in the {v} | kept at the {v} | over at the {v} |
            the {v} is where it happens | sent to the {v} | {n} waits at the {v}"""
        ),
    ),
    (
        "day",
        "string",
        lambda d: d.pick(WEEKDAY),
        ways(
            """on {v} | the day is {v} | every {v} | each {v} | {v} is the day | this {v} | next {v} |
            always on {v} | due on {v} | scheduled for {v} | planned for {v} | by {v} | on a {v} |
            it falls on a {v} | day {v} | every week on {v} | {v} works best | come on {v} | set for {v} |
            booked for {v} | it happened on {v} | until {v}"""
        ),
    ),
    (
        "product",
        "string",
        lambda d: d.thing(),
        ways(
            """the product is {av} | the item is {av} | it is {av} | product {v} | {n} bought {av} |
            {n} ordered {av} | {n} sells {av} | one {v} | {n} wants {av} | the article is {av} | sold as {av} |
            we ship {av} | the parcel holds {av} | in the box is {av} | {n} chose {av} | {n} got {av} |
            about {av} | listed as {av} | {av} was bought | {n} asks for {av} | {n} needs {av}"""
        ),
    ),
    (
        "code",
        "string",
        lambda d: d.code(),
        ways(
            """the code is {v} | with the code {v} | code {v} | marked {v} | labeled {v} | coded {v} |
            under the code {v} | use {v} | enter {v} | the code reads {v} | stamped {v} | tagged {v} |
            reference {v} | the reference is {v} | key in {v} | quote {v} | type {v} | filed under {v} |
            it carries {v} | the label says {v} | it says {v} | found under {v}"""
        ),
    ),
    (
        "id",
        "integer",
        lambda d: d.int(1, 99999),
        ways(
            """the id is {v} | with id {v} | number {v} | id {v} | entry {v} | record {v} | under number {v} |
            the number is {v} | numbered {v} | listed as number {v} | it has the number {v} |
            with the number {v} | known as number {v} | entry number {v} | #{v} | no. {v} |
            filed under number {v} | its identifier is {v} | item number {v} | record number {v}"""
        ),
    ),
    (
        "active",
        "boolean",
        lambda d: d.chance(0.5),
        ways(
            """it is {yes}active | {n} is {yes}active | it was {yes}active | {yes}active | currently {yes}active |
            {yes}active at the moment | this one is {yes}active | marked as {yes}active | {yes}active now |
            it seems {yes}active | reported as {yes}active | {yes}active today | {n} was {yes}active |
            known to be {yes}active | right now it is {yes}active | the account is {yes}active |
            listed as {yes}active | in fact {yes}active | it stays {yes}active | {n} seems {yes}active |
            shown as {yes}active | at present {yes}active"""
        ),
    ),
    (
        "paid",
        "boolean",
        lambda d: d.chance(0.5),
        ways(
            """it is {yes}paid | it was {yes}paid | {yes}paid | the bill is {yes}paid | the bill was {yes}paid |
            marked as {yes}paid | {n} has {yes}paid | so far it is {yes}paid | reported as {yes}paid |
            it seems {yes}paid | currently {yes}paid | the invoice was {yes}paid | we see it as {yes}paid |
            booked as {yes}paid | {yes}paid as of today | {yes}paid in full | in fact {yes}paid |
            listed as {yes}paid | known to be {yes}paid"""
        ),
    ),
    (
        "country",
        "string",
        lambda d: d.pseudo().capitalize() + "land",
        ways(
            """the country is {v} | in the country {v} | country {v} | {n} was born in {v} | a citizen of {v} |
            {n} comes from {v} | over in {v} | somewhere in {v} | made in {v} | imported from {v} | from {v} |
            across {v} | the homeland is {v} | native to {v} | it was grown in {v} | {n} travels through {v} |
            back in {v} | shipped to {v} | {n} grew up in {v} | {n} hails from {v}"""
        ),
    ),
    (
        "subject",
        "string",
        lambda d: d.word(SUBJECT),
        ways(
            """the subject is {v} | about {v} | {n} studies {v} | subject {v} | {n} teaches {v} | {n} learns {v} |
            {n} takes {v} | a course in {v} | lessons in {v} | it deals with {v} | it is about {v} |
            {n} reads about {v} | the topic is {v} | on {v} | {n} signed up for {v} | a talk on {v} |
            {n} enjoys {v} | an exam in {v} | the field is {v} | {n} is fond of {v} | {n} chose {v}"""
        ),
    ),
    (
        "company",
        "string",
        lambda d: d.pseudo().capitalize() + d.pick((" Ltd", " Inc", "")),
        ways(
            """the company is {v} | {n} works at {v} | from the company {v} | company {v} | {n} works for {v} |
            employed at {v} | employed by {v} | made by {v} | sold by {v} | hired by {v} | delivered by {v} |
            on behalf of {v} | the firm is {v} | {n} runs {v} | {n} owns {v} | the employer is {v} |
            a product of {v} | with the firm {v} | {n} founded {v} | the business is {v} | on the staff of {v}"""
        ),
    ),
    (
        "score",
        "integer",
        lambda d: d.int(0, 100),
        ways(
            """the score is {v} | with {v} points | {n} scored {v} | {v} points | score {v} | {n} got {v} points |
            {n} earned {v} points | a result of {v} points | {n} reached {v} points | rated {v} |
            rated {v} points | {n} finished with {v} points | {n} made {v} points | {v} points in the end |
            a score of {v} | graded {v} | the mark is {v} | {n} collected {v} points | scoring {v} |
            good for {v} points"""
        ),
    ),
    (
        "version",
        "string",
        lambda d: f"{d.int(0, 9)}.{d.int(0, 30)}",
        ways(
            """the version is {v} | version {v} | in version {v} | running {v} | release {v} | the release is {v} |
            build {v} | updated to {v} | upgraded to {v} | shipped as {v} | since version {v} | on version {v} |
            it runs {v} | tagged {v} | v{v} | the latest is {v} | at version {v} | the release number is {v} |
            revision {v}"""
        ),
    ),
    (
        "status",
        "string",
        lambda d: d.pick(("open", "closed", "pending", "shipped", "done")),
        ways(
            """the status is {v} | it is {v} now | status {v} | currently {v} | marked {v} | marked as {v} | now {v} |
            the order is {v} | it is {v} | it is still {v} | reported as {v} | the state is {v} | so far {v} |
            it went to {v} | {v} at the moment | {v} as of today | the ticket is {v} | recorded as {v} |
            by now it is {v} | we consider it {v} | listed as {v} | it seems {v}"""
        ),
    ),
]

# fields whose values look alike: one of them can be told by its value only where no other of its group is asked for
LOOKS = {
    "name": "proper",
    "city": "proper",
    "company": "proper",
    "country": "proper",
    "age": "whole",
    "quantity": "whole",
    "id": "whole",
    "score": "whole",
    "price": "decimal",
    "weight": "decimal",
    "version": "decimal",
}
LEADS = """announce answer arrange ask aim bring carry check choose claim collect come consult describe deliver enter
expect favor find follow get give go grab handle have hear hint hold include join keep know leave link look lookup
make match meet mention name need note observe offer open order pass pick ping place point post print pull push
quote reach read recall reply report return ring route say see seek select send show sign speak spot stand state
stick store take talk target tell track trust try turn understand use value view visit want watch wire wish write
via plus namely likewise hence also there here""".split()
STRANGE = ways(
    """{w} {v} | {w}: {v} | {w} at {v} | {w} to {v} | {w} with {v} | {w} under {v} | {w} for {v} | {n} {w}s {v} |
    {n} {w}s at {v} | please {w} {v} | {n} may {w} {v} | to {w} {n}: {v} | {w}ed {v} | {w}able at {v} | {w} on {v} |
    {v} {w}ed | {n} {w}ed in {v} | {w}ing {v} | it {w}s {v} | {w} of {v}"""
)
