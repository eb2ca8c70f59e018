# SPDX-License-Identifier: Apache-2.0
"""resize.py - a handler in Python: args on stdin, the verdict on descriptor PAWL_REPLY_FD.

Keeps     an output appears whole or not at all (rename), so running it again does no harm: Pawl
          promises at least one run of a program, and one acknowledgement.
"""
import json
import os
import sys


def verdict(**said):
    with os.fdopen(int(os.environ["PAWL_REPLY_FD"]), "w") as reply:
        json.dump(said, reply)


def main():
    args = json.load(sys.stdin)
    try:
        width, height = args["width"], args["height"]
        factor = 100 / max(width, height)
    except (KeyError, ZeroDivisionError) as bad:
        verdict(fail={"error": "not a picture: %r" % bad})
        return 0
    if args.get("huge") and int(os.environ["PAWL_ATTEMPT"]) == 1:
        print("out of memory", file=sys.stderr)
        return 9
    thumb = {"width": round(width * factor), "height": round(height * factor)}
    with open("thumb.tmp", "w") as f:
        json.dump(thumb, f)
    os.rename("thumb.tmp", "thumb-%s.json" % os.environ["PAWL_JOB_ID"])
    verdict(done={"result": thumb})
    return 0


if __name__ == "__main__":
    sys.exit(main())
