#!/usr/bin/env python3
"""Speed of the two reference shapes on this machine, kept from release to release.

    bench/anchors.py LAGOON [--save FILE] [--compare FILE] [-- FLAGS OF lagoon bench]

Runs `lagoon bench` on XS 2.1 with 8 layers and S 2.1 with 4 layers, synthetic, and prints one line a measurement.
--save keeps the reports as JSON. --compare prints each median against a kept one and ends with status 1 when one fell
by more than 5 % and out of the kept spread: that stops a release, it is no test. Compare only on the same machine,
idle, with the same flags.
"""
import argparse
import json
import subprocess
import sys

SHAPES = [("xs-2.1", 8), ("s-2.1", 4)]
FALL = 0.95


def measure(program, shape, layers, flags):
    words = [program, "bench", "--synthetic", shape, "--layers", str(layers), "--depth", "0,4096", "--json", *flags]
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)


def name(report, run):
    return f"{report['model']}: {run['phase']} at {run['depth']}"


def main():
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(usage="anchors.py LAGOON [--save FILE] [--compare FILE] [-- FLAGS]")
    parser.add_argument("program")
    parser.add_argument("--save")
    parser.add_argument("--compare")
    args = parser.parse_args(sys.argv[1:at])
    reports = [measure(args.program, shape, layers, sys.argv[at + 1:]) for shape, layers in SHAPES]
    kept = {}
    if args.compare:
        with open(args.compare) as f:
            kept = {name(report, run): run for report in json.load(f) for run in report["runs"]}
    fell = False
    for report in reports:
        print(f"{report['model']}  {report['device']}  {report['bandwidth_gbs']:.1f} GB/s  {report['compute_gops']:.0f} Gop/s")
        for run in report["runs"]:
            line = (f"  {run['phase']:8} {run['depth']:6} {run['tok_s']:10.2f} tok/s  ({run['tok_s_min']:.2f} to "
                    f"{run['tok_s_max']:.2f})  {100 * run['roofline']:5.1f} % of ceiling")
            old = kept.get(name(report, run))
            if old:
                line += f"  {100 * run['tok_s'] / old['tok_s']:6.1f} % of before"
                if run["tok_s"] < FALL * old["tok_s"] and run["tok_s"] < old["tok_s_min"]:
                    line += "  FELL"
                    fell = True
            print(line)
    if args.save:
        with open(args.save, "w") as f:
            json.dump(reports, f, indent=1)
    return 1 if fell else 0


if __name__ == "__main__":
    sys.exit(main())
