"""Every role of the corpus has phrasings that only the test uses and enough others to learn it from; and what training
draws never contains a phrasing of the test.

usage: test_phrasings.py [DRAWS]      draws of every skill, 400 by default
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "mini"))
from skills import chat, extract, fields, params, text, tools, words  # noqa: E402

LEAST = 8
LABELLED = {"sentence", "say"}  # lists made for one label; the fixed ones are checked as tables


def held(phrasing):
    return words.held_out("say", phrasing, one_in=8)


class Watch(words.Draw):
    """A draw that notes the lists it chose from, and where."""

    def __init__(self, seed, split="train"):
        super().__init__(seed, split)
        self.lists, self.said = {}, set()

    def say(self, *phrasings):
        where = sys._getframe(1)
        got = super().say(*phrasings)
        self.said.add(got)
        if where.f_code.co_name not in LABELLED:
            self.lists[phrasings] = f"{Path(where.f_code.co_filename).stem}.{where.f_code.co_name}"
        return got


def main(draws=400):
    d, test = Watch(11), Watch(12, "test")
    for maker, _ in [*chat.SKILLS, *text.SKILLS, *tools.SKILLS, *extract.SKILLS]:
        for _ in range(draws):
            maker(d)
            maker(test)
    lists = {**test.lists, **d.lists}
    lists.update({f[3]: f"field {f[0]}" for f in fields.FIELDS})
    lists.update({p[4]: f"parameter {p[0]}" for p in params.PARAMS if p[1] != "boolean"})
    bad = []
    for phrasings, where in lists.items():
        mine = [p for p in phrasings if held(p)]
        if not mine or len(phrasings) - len(mine) < LEAST or len(set(phrasings)) < len(phrasings):
            bad.append(f"{where}: {len(mine)} of {len(phrasings)} held out, in {phrasings[0]!r} ...")
    bad += [f"training said {p!r}" for p in sorted(d.said) if held(p)]
    bad += [f"training may say {p!r}" for p in {extract.strange(d) for _ in range(20 * draws)} if held(p)]
    print("\n".join(bad + [f"{len(lists)} lists, {len(d.said)} phrasings met in training, {len(bad)} wrong"]))
    return bool(bad) or len(lists) < 100


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
