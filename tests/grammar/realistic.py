#!/usr/bin/env python3
"""Writes schemas of the kind that programs send: payloads of APIs, configuration files, parameters of tools, of 1 to 200 KB.

    realistic.py FOLDER [N [SEED]]      FOLDER/realistic.jsonl, one {"schema": ...} a line; default 200

They are made from parts that such schemas have: records that refer to one another, names and lists of names, dates, ids,
addresses, patterns, numbers within bounds, fields that may be null, alternatives told apart by a constant, maps, long
descriptions. The same seed gives the same file.
"""
import json
import os
import random
import sys

THINGS = """account address alert asset author backup balance banner batch bucket budget card cart category channel charge
client cluster comment commit company contact container contract coupon currency customer dataset deployment device discount
document domain email employee endpoint event experiment export feature file filter folder group host image index invoice issue
item job key label layer ledger license link listing location log market member message metric model module network note notice
offer order organization page parcel partner payment permission person pipeline plan policy post price process product profile
project promotion provider queue quota receipt record region release report repository request resource response review role
room route rule schedule schema score secret section sensor server service session setting shipment site snapshot source space
stage statement step stock store stream subscription supplier survey table tag target task team template tenant thread ticket
token topic trace transaction transfer trigger unit upload user variant vendor version view volume wallet warehouse webhook
workflow workspace zone""".split()
SIDES = """id name title status kind state count total amount size limit offset owner created_at updated_at deleted_at enabled
visible required default description summary url path code number index order priority weight score rate ratio percent start end
duration timeout retries color language locale country city street zip phone email first_name last_name birthday age width height
depth latitude longitude altitude currency price tax discount quantity unit version branch commit message level reason""".split()
WORDS = """the a of for to and or with this that value field when set used request only object list is are be must may each
response given optional unless otherwise server client time zone same first last""".split()
PATTERNS = ["^[a-z][a-z0-9-]{2,62}$", "^[A-Z]{2}[0-9]{6}$", "^\\+[1-9][0-9]{6,14}$", "^[0-9a-f]{40}$", "^v?[0-9]+\\.[0-9]+\\.[0-9]+$",
            "^#[0-9a-fA-F]{6}$", "^[A-Z]{3}$", "^/[a-z0-9/_-]*$", "^(GET|POST|PUT|DELETE) /", "^[^\\s@]+$"]
FORMATS = ["date-time", "date", "time", "uuid", "email", "uri", "hostname", "ipv4", "ipv6", "duration"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.defs = []

    def says(self, most=16):
        return " ".join(self.r.choices(WORDS + THINGS, k=self.r.randint(3, most))).capitalize() + "."

    def names(self, n):
        out = {}
        while len(out) < n:
            name = self.r.choice(SIDES) if self.r.random() < 0.5 else f"{self.r.choice(THINGS)}_{self.r.choice(SIDES)}"
            out.setdefault(name if name not in out else f"{name}_{len(out)}")
        return list(out)

    def text(self):
        r = self.r.random()
        if r < 0.45:
            return {"type": "string"}
        if r < 0.6:
            return {"type": "string", "minLength": self.r.randint(0, 2), "maxLength": self.r.choice((20, 64, 255, 4000))}
        if r < 0.8:
            return {"type": "string", "format": self.r.choice(FORMATS)}
        if r < 0.88:
            return {"type": "string", "pattern": self.r.choice(PATTERNS)}
        return {"type": "string", "enum": self.r.sample(THINGS, self.r.randint(2, 25))}

    def number(self):
        s = {"type": self.r.choice(("integer", "integer", "number"))}
        if self.r.random() < 0.5:
            s["minimum"] = self.r.choice((0, 1, -90))
        if self.r.random() < 0.4:
            s["maximum"] = self.r.choice((100, 65535, 1000000, 180))
        if s["type"] == "number" and self.r.random() < 0.1:
            s["multipleOf"] = 0.01
        return s

    def kinds(self, depth):
        """Alternatives that a constant tells apart."""
        out = []
        for kind in self.r.sample(THINGS, self.r.randint(2, 5)):
            s = self.record(depth - 1, self.r.randint(1, 5))
            s["properties"] = {"type": {"const": kind}, **s["properties"]}
            s["required"] = ["type", *s["required"]]
            out.append(s)
        return {self.r.choice(("oneOf", "anyOf")): out}

    def value(self, depth):
        r = self.r.random()
        if r < 0.45 or depth <= 0:
            s = self.text()
        elif r < 0.62:
            s = self.number()
        elif r < 0.7:
            s = {"type": "boolean"}
        elif r < 0.8:
            s = {"type": "array", "items": self.value(depth - 1)}
            if self.r.random() < 0.3:
                s["maxItems"] = self.r.choice((5, 50, 1000))
            if self.r.random() < 0.2:
                s["minItems"] = 1
        elif r < 0.88:
            s = self.record(depth - 1, self.r.randint(2, 8))
        elif r < 0.91:
            s = {"type": "object", "additionalProperties": self.text()}
        elif r < 0.94:
            s = self.kinds(depth)
        elif self.defs:
            return {"$ref": "#/$defs/" + self.r.choice(self.defs)}
        else:
            s = self.text()
        if self.r.random() < 0.12 and isinstance(s.get("type"), str) and "enum" not in s:
            s["type"] = [s["type"], "null"]
        if self.r.random() < 0.4:
            s["description"] = self.says()
        return s

    def record(self, depth, n):
        props = {name: self.value(depth) for name in self.names(n)}
        s = {"type": "object", "properties": props, "required": [k for k in props if self.r.random() < 0.6]}
        if self.r.random() < 0.6:
            s["additionalProperties"] = False
        return s

    def schema(self, size):
        self.defs = self.r.sample(THINGS, self.r.randint(0, 8))
        root = self.record(2, 3)
        root["$defs"] = {name: self.record(2, self.r.randint(2, 8)) for name in self.defs}
        if self.r.random() < 0.5:
            root = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": self.says(5), **root}
        while len(json.dumps(root)) < size:
            home = root if self.r.random() < 0.6 or not self.defs else root["$defs"][self.r.choice(self.defs)]
            home["properties"][f"{self.r.choice(THINGS)}_{self.r.choice(SIDES)}_{len(home['properties'])}"] = self.value(3)
        return root


def main(folder, n="200", seed="1"):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "realistic.jsonl"), "w", encoding="utf-8") as f:
        for i in range(int(n)):
            m = Maker(int(seed) * 1000003 + i)
            f.write(json.dumps({"schema": m.schema(int(1000 * 200 ** m.r.random()))}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
