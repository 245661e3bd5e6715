"""@anthropic-ai/sdk against scripted models; the checks themselves are in anthropic_sdk.mjs."""
import json
import os

import client
import lib
import web

MODULES = client.package("@anthropic-ai/sdk")
STEPS = 13


class AnthropicSdk(lib.Case):
    def test_everything(self):
        talk = client.script("talk", "I should look it up.", [
            "Let me see. ", 25, "lookup<arg_key>what</arg_key><arg_value>the \"thing\" é漢🚩</arg_value>"
            "<arg_key>n</arg_key><arg_value>42</arg_value>", 26])
        env, folder = client.home("sdk")
        strict = ("--queue-capacity", "1", "--model-policy", "strict", "--model-aliases", "claude-test", "--api-key",
                  "sesame", "--max-body-bytes", "1MiB")
        with web.Server(talk) as a, web.Server("loop", *strict) as b, web.Server("loop") as c:
            env["LAGOON_TEST"] = json.dumps({"modules": MODULES, "talk": a.port, "loop": b.port, "last": c.port,
                                             "pid": c.process.pid})
            out = client.run(["node", os.path.join(client.HERE, "anthropic_sdk.mjs")], env, folder)
            self.assertEqual(out.count("ok: "), STEPS, out)
            self.assertIn(c.wait(), (0, 130))


lib.main()
