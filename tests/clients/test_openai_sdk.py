"""The openai SDK against scripted models; the checks themselves are in openai_sdk.mjs."""
import json
import os
import re

import client
import lib
import web

MODULES = client.package("openai")


class OpenaiSdk(lib.Case):
    def test_everything(self):
        talk = client.script("talk", "I should look it up.", [
            "Let me see. ", 25, "lookup<arg_key>what</arg_key><arg_value>the \"thing\" é漢🚩</arg_value>"
            "<arg_key>n</arg_key><arg_value>42</arg_value>", 26])
        env, folder = client.home("sdk")
        strict = ("--queue-capacity", "1", "--model-policy", "strict", "--model-aliases", "gpt-test", "--api-key",
                  "sesame", "--max-body-bytes", "1MiB")
        with web.Server(talk) as a, web.Server("loop", *strict) as b, web.Server("loop") as c:
            env["LAGOON_TEST"] = json.dumps({"modules": MODULES, "talk": a.port, "loop": b.port, "last": c.port,
                                             "pid": c.process.pid})
            out = client.run(["node", os.path.join(client.HERE, "openai_sdk.mjs")], env, folder)
            self.assertEqual(out.count("ok: "), int(re.search(r"steps: (\d+)", out)[1]), out)
            self.assertIn(c.wait(), (0, 130))


lib.main()
