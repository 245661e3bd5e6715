"""Every family of the code skill passes its own tests in every language it is written in.

usage: test_families.py [ROUNDS]      JavaScript is skipped when node is not installed
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "mini"))
import runcode  # noqa: E402
from skills import code, families, words  # noqa: E402

runcode.LIMIT_S = 300  # all of them are right, so none is to be cut short on a busy machine


def main(rounds=1):
    d = words.Draw(7)
    passed = failed = skipped = 0
    for fam in families.FAMILIES:
        for lang in code.LANG:
            if not getattr(fam, lang):
                continue
            for _ in range(rounds):
                t = code.Task(d, lang, fam)
                ok = runcode.passes(code.fenced(lang, t.source(True)), t.check(d))
                passed += ok is True
                skipped += ok is None
                if ok is False:
                    failed += 1
                    print(f"{fam.key} in {lang}:\n{t.source()}\n{t.check(d)['tests']}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


sys.exit(main(*map(int, sys.argv[1:2])))
