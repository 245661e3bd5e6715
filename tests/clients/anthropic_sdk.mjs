// What @anthropic-ai/sdk makes of lagoon: every event, every exception class that can be reached, abort, timeouts,
// retries. Servers come in LAGOON_TEST (JSON); the first failure ends the run.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import path from 'node:path';

const test = JSON.parse(process.env.LAGOON_TEST);
const require = createRequire(path.join(test.modules, 'x.js'));
const sdk = await import(pathToFileURL(require.resolve('@anthropic-ai/sdk/index.mjs')));
const Anthropic = sdk.default;
const client = (port, more = {}) =>
  new Anthropic({ baseURL: `http://127.0.0.1:${port}`, apiKey: 'sesame', maxRetries: 0, ...more });
const talk = client(test.talk), loop = client(test.loop);
const user = (content) => ({ role: 'user', content });
const tools = [{ name: 'lookup', description: 'look it up',
                 input_schema: { type: 'object', properties: { what: { type: 'string' }, n: { type: 'integer' } } } }];
const ask = { model: 'claude-test', max_tokens: 2000, messages: [user('What is it?')], tools };
const brief = { model: 'claude-test', max_tokens: 4, thinking: { type: 'disabled' }, messages: [user('Go.')] };
const endless = { ...brief, max_tokens: 250000 }; // minutes on any machine
const bare = (content) => content.map(({ id, signature, ...rest }) => rest);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function fails(what, type, check = () => {}) {
  try {
    await what();
  } catch (e) {
    assert.ok(e instanceof type, `${e?.constructor?.name}: ${e?.message}; ${type.name} was expected`);
    check(e);
    return;
  }
  assert.fail(`${type.name} was expected`);
}

const steps = {
  async 'one body'() {
    const m = await talk.messages.create(ask);
    assert.deepEqual(m.content.map((b) => b.type), ['thinking', 'text', 'tool_use']);
    assert.equal(m.content[0].thinking, 'I should look it up.');
    assert.ok(m.content[0].signature.length > 0);
    assert.equal(m.content[1].text, 'Let me see. ');
    assert.deepEqual(m.content[2].input, { what: 'the "thing" é漢🚩', n: 42 });
    assert.equal(m.stop_reason, 'tool_use');
    assert.equal(m.model, 'claude-test');
    assert.match(m._request_id, /^req_/);
    this.first = m;
  },

  async 'a stream, event by event'() {
    const events = new Set(), deltas = new Set();
    for await (const e of await talk.messages.create({ ...ask, stream: true })) {
      events.add(e.type);
      if (e.type === 'content_block_delta') deltas.add(e.delta.type);
    }
    assert.deepEqual([...events], ['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop',
                                   'message_delta', 'message_stop']);
    assert.deepEqual([...deltas], ['thinking_delta', 'signature_delta', 'text_delta', 'input_json_delta']);
  },

  async 'a stream, as a message'() {
    const seen = {}, count = (name) => () => (seen[name] = (seen[name] ?? 0) + 1);
    const s = talk.messages.stream(ask);
    for (const name of ['connect', 'streamEvent', 'text', 'thinking', 'signature', 'inputJson', 'contentBlock', 'message',
                        'finalMessage', 'end'])
      s.on(name, count(name));
    const m = await s.finalMessage();
    assert.deepEqual(bare(m.content), bare(this.first.content));
    assert.equal(m.content[0].signature, this.first.content[0].signature);
    assert.equal(m.stop_reason, 'tool_use');
    assert.equal(m.usage.output_tokens, this.first.usage.output_tokens);
    assert.equal(m.usage.input_tokens + m.usage.cache_read_input_tokens,
                 this.first.usage.input_tokens + this.first.usage.cache_read_input_tokens);
    await sleep(10);
    assert.equal(Object.keys(seen).length, 10, JSON.stringify(seen));
    assert.ok(seen.inputJson > 3 && seen.thinking > 1);
    assert.equal(seen.contentBlock, 3);
  },

  async 'the turn comes back'() {
    const turn = [...ask.messages, { role: 'assistant', content: this.first.content },
                  user([{ type: 'tool_result', tool_use_id: this.first.content[2].id, content: 'It is blue.' }])];
    const m = await talk.messages.create({ ...ask, messages: turn });
    const before = this.first.usage.input_tokens + this.first.usage.cache_read_input_tokens;
    // the whole first prompt at least; the script's own tokens are not how its text would be encoded
    assert.ok(m.usage.cache_read_input_tokens >= before, `${m.usage.cache_read_input_tokens} of ${before}`);
  },

  async 'counting'() {
    for (const more of [{}, { system: 'Be short.' }, { tools: undefined }, { tool_choice: { type: 'none' } },
                        { system: [{ type: 'text', text: 'x-anthropic-billing-header: cch=1;' },
                                   { type: 'text', text: 'Be short.' }] }]) {
      const { max_tokens, ...body } = { ...ask, ...more };
      const { input_tokens } = await talk.messages.countTokens(body);
      const { usage } = await talk.messages.create({ ...ask, ...more });
      assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
    }
  },

  async 'ways to end'() {
    const stop = await talk.messages.create({ ...ask, stop_sequences: ['me see'] });
    assert.equal(stop.stop_reason, 'stop_sequence');
    assert.equal(stop.stop_sequence, 'me see');
    assert.equal(stop.content.at(-1).text, 'Let ');
    const cut = await loop.messages.create(brief);
    assert.equal(cut.stop_reason, 'max_tokens');
    assert.equal(cut.usage.output_tokens, 4);
  },

  async 'models'() {
    const ids = [];
    for await (const m of talk.models.list()) ids.push(m.id);
    assert.ok(ids.length >= 1);
    const one = await talk.models.retrieve(ids[0]);
    assert.equal(one.id, ids[0]);
    assert.equal(one.type, 'model');
    assert.ok(!Number.isNaN(Date.parse(one.created_at)));
  },

  async 'errors have their classes'() {
    await fails(() => talk.messages.create({ ...ask, messages: [] }), sdk.BadRequestError, (e) => {
      assert.equal(e.status, 400);
      assert.equal(e.type, 'invalid_request_error');
      assert.match(e.requestID, /^req_/);
      assert.equal(e.error.request_id, e.requestID);
    });
    await fails(() => talk.messages.create({ ...ask, messages: [user([{ type: 'image', source: {} }])] }),
                sdk.BadRequestError, (e) => assert.match(e.message, /messages\[0\]\.content\[0\]/));
    await fails(() => talk.messages.create({ ...ask, stream: true, temperature: 9 }), sdk.BadRequestError);
    await fails(() => loop.messages.create({ ...brief, messages: [user('long '.repeat(60000))] }), sdk.BadRequestError,
                (e) => assert.match(e.message, /prompt is too long: \d+ tokens > \d+ maximum/));
    await fails(() => client(test.loop, { apiKey: 'wrong' }).messages.create(brief), sdk.AuthenticationError,
                (e) => assert.equal(e.type, 'authentication_error'));
    await fails(() => loop.messages.create({ ...brief, model: 'other' }), sdk.NotFoundError,
                (e) => assert.equal(e.type, 'not_found_error'));
    await fails(() => talk.post('/v1/nothing', { body: {} }), sdk.NotFoundError);
    await fails(() => loop.messages.create({ ...brief, messages: [user('x'.repeat(2 << 20))] }), sdk.ContentTooLargeError,
                (e) => assert.equal(e.type, 'request_too_large'));
    await fails(() => client(1).messages.create(brief), sdk.APIConnectionError);
  },

  async 'a token by either header'() {
    await client(test.loop, { apiKey: null, authToken: 'sesame' }).messages.create(brief);
    await client(test.loop, { apiKey: 'sesame' }).messages.create(brief);
  },

  async 'patience'() {
    await fails(() => client(test.loop, { timeout: 200 }).messages.create(endless), sdk.APIConnectionTimeoutError);
  },

  async 'abort'() {
    const s = loop.messages.stream(endless);
    await new Promise((go) => s.once('text', go));
    s.abort();
    await fails(() => s.finalMessage(), sdk.APIUserAbortError);
    const start = Date.now();
    await loop.messages.create(brief); // the engine is free at once, not when it is done
    assert.ok(Date.now() - start < 60000, `${Date.now() - start} ms`);
  },

  async 'a full queue, and retries'() {
    const running = loop.messages.stream(endless);
    await new Promise((go) => running.once('text', go));
    const waiting = loop.messages.stream(endless);
    await new Promise((go) => waiting.once('streamEvent', go)); // its message_start comes while it waits
    await fails(() => loop.messages.create(brief), sdk.RateLimitError, (e) => {
      assert.equal(e.type, 'rate_limit_error');
      assert.equal(e.headers.get('retry-after'), '1');
    });
    const patient = client(test.loop, { maxRetries: 50 }).messages.create(brief);
    await sleep(300);
    running.abort();
    waiting.abort();
    await Promise.allSettled([running.done(), waiting.done()]);
    assert.equal((await patient).stop_reason, 'max_tokens');
  },

  async 'a server that stops'() {
    const last = client(test.last);
    const s = await last.messages.create({ ...endless, stream: true });
    let n = 0;
    await fails(async () => {
      for await (const e of s) {
        if (++n !== 5) continue;
        process.kill(test.pid, 'SIGTERM');
        await sleep(300);
        await fails(() => last.messages.create(brief), sdk.ServiceUnavailableError,
                    (x) => assert.equal(x.type, 'overloaded_error'));
        process.kill(test.pid, 'SIGTERM');
      }
    }, sdk.APIError, (e) => assert.equal(e.type, 'overloaded_error'));
  },
};

const state = {};
for (const [name, step] of Object.entries(steps)) {
  await step.call(state);
  console.log(`ok: ${name}`);
}
