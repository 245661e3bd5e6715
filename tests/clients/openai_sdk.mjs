// What the openai SDK makes of lagoon, Chat Completions and Responses: every event, every exception class that can be
// reached, abort, timeouts, retries. Servers come in LAGOON_TEST (JSON); the first failure ends the run.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import path from 'node:path';

const test = JSON.parse(process.env.LAGOON_TEST);
const require = createRequire(path.join(test.modules, 'x.js'));
const sdk = await import(pathToFileURL(require.resolve('openai/index.mjs')));
const client = (port, more = {}) =>
  new sdk.default({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: 'sesame', maxRetries: 0, ...more });
const talk = client(test.talk), loop = client(test.loop);
const user = (content) => ({ role: 'user', content });
const parameters = { type: 'object', properties: { what: { type: 'string' }, n: { type: 'integer' } } };
const what = { what: 'the "thing" é漢🚩', n: 42 };
const ask = { model: 'gpt-test', messages: [user('What is it?')],
              tools: [{ type: 'function', function: { name: 'lookup', description: 'look it up', parameters } }] };
const item = { model: 'gpt-test', input: 'What is it?', reasoning: { summary: 'auto' },
               include: ['reasoning.encrypted_content'],
               tools: [{ type: 'function', name: 'lookup', description: 'look it up', parameters, strict: false }] };
const brief = { model: 'gpt-test', max_tokens: 4, reasoning_effort: 'none', messages: [user('Go.')] };
const endless = { ...brief, max_tokens: 250000 }; // minutes on any machine
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function fails(act, type, check = () => {}) {
  try {
    await act();
  } catch (e) {
    assert.ok(e instanceof type, `${e?.constructor?.name}: ${e?.message}; ${type.name} was expected`);
    check(e);
    return;
  }
  assert.fail(`${type.name} was expected`);
}

// The first piece of text of a stream of Chat Completions.
async function begun(stream) {
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content) return;
}

const steps = {
  async 'chat: one body'() {
    const c = await talk.chat.completions.create(ask);
    const m = c.choices[0].message;
    assert.match(c.id, /^chatcmpl-/);
    assert.equal(c.object, 'chat.completion');
    assert.equal(c.model, 'gpt-test');
    assert.equal(c.choices[0].finish_reason, 'tool_calls');
    assert.equal(m.content, 'Let me see. ');
    assert.equal(m.reasoning_content, 'I should look it up.');
    assert.deepEqual(JSON.parse(m.tool_calls[0].function.arguments), what);
    assert.equal(c.usage.total_tokens, c.usage.prompt_tokens + c.usage.completion_tokens);
    assert.ok(c.usage.completion_tokens_details.reasoning_tokens > 0);
    this.chat = c;
  },

  async 'chat: a stream, chunk by chunk'() {
    const chunks = [];
    for await (const c of await talk.chat.completions.create({ ...ask, stream: true,
                                                              stream_options: { include_usage: true } }))
      chunks.push(c);
    const last = chunks.pop(), end = chunks.at(-1), calls = chunks.flatMap((c) => c.choices[0].delta.tool_calls ?? []);
    assert.deepEqual(chunks[0].choices[0].delta, { role: 'assistant', content: '' });
    assert.deepEqual(end.choices[0].delta, {});
    assert.equal(end.choices[0].finish_reason, 'tool_calls');
    assert.equal(chunks.filter((c) => c.choices[0].finish_reason).length, 1);
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.completion_tokens, this.chat.usage.completion_tokens);
    assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
    assert.ok(calls.length > 3);
    assert.match(calls[0].id, /^call_/);
    assert.ok(calls.every((c, i) => c.index === 0 && (i === 0) === ('id' in c)));
    assert.deepEqual(JSON.parse(calls.map((c) => c.function.arguments).join('')), what);
  },

  async 'chat: a stream, as a completion'() {
    const seen = new Set();
    const s = talk.chat.completions.stream(ask);
    for (const name of ['connect', 'chunk', 'content', 'content.delta', 'content.done', 'message',
                        'finalChatCompletion', 'tool_calls.function.arguments.delta',
                        'tool_calls.function.arguments.done', 'end'])
      s.on(name, () => seen.add(name));
    const c = await s.finalChatCompletion();
    const { id, ...call } = c.choices[0].message.tool_calls[0];
    assert.match(id, /^call_/);
    assert.equal(call.function.arguments, this.chat.choices[0].message.tool_calls[0].function.arguments);
    assert.equal(c.choices[0].message.content, this.chat.choices[0].message.content);
    assert.equal(c.choices[0].finish_reason, 'tool_calls');
    await sleep(10);
    assert.equal(seen.size, 10, [...seen].join());
  },

  async 'chat: the turn comes back'() {
    const m = this.chat.choices[0].message;
    const back = { role: 'tool', tool_call_id: m.tool_calls[0].id, content: 'It is blue.' };
    const again = await talk.chat.completions.create({ ...ask, messages: [...ask.messages, m, back] });
    const bare = await talk.chat.completions.create(
      { ...ask, messages: [...ask.messages, { ...m, reasoning_content: undefined }, back] });
    assert.ok(again.usage.prompt_tokens_details.cached_tokens >= this.chat.usage.prompt_tokens);
    // a client that does not send the reasoning back gets the same prompt
    assert.equal(bare.usage.prompt_tokens, again.usage.prompt_tokens);
    assert.equal(bare.usage.prompt_tokens_details.cached_tokens, again.usage.prompt_tokens - 1);
  },

  async 'chat: ways to end'() {
    const stop = await talk.chat.completions.create({ ...ask, stop: ['me see'] });
    assert.equal(stop.choices[0].finish_reason, 'stop');
    assert.equal(stop.choices[0].message.content, 'Let ');
    assert.ok(!('tool_calls' in stop.choices[0].message));
    const cut = await loop.chat.completions.create(brief);
    assert.equal(cut.choices[0].finish_reason, 'length');
    assert.equal(cut.usage.completion_tokens, 4);
    assert.ok(!('reasoning_content' in cut.choices[0].message));
    const two = await loop.chat.completions.create({ ...brief, n: 2 });
    assert.deepEqual(two.choices.map((c) => c.index), [0, 1]);
    assert.equal(two.usage.completion_tokens, 8);
  },

  async 'chat: log-probabilities'() {
    const c = await loop.chat.completions.create({ ...brief, logprobs: true, top_logprobs: 2 });
    const entries = c.choices[0].logprobs.content;
    assert.ok(entries.length >= 3 && entries.length <= 4, `${entries.length}`);
    for (const e of entries) {
      assert.equal(Buffer.from(e.bytes).toString(), e.token);
      assert.ok(e.logprob <= 0);
      assert.equal(e.top_logprobs.length, 2);
    }
  },

  async 'responses: one object'() {
    const r = await talk.responses.create(item);
    assert.match(r.id, /^resp_/);
    assert.equal(r.status, 'completed');
    assert.deepEqual(r.output.map((i) => i.type), ['reasoning', 'message', 'function_call']);
    assert.equal(r.output_text, 'Let me see. ');
    assert.equal(r.output[0].summary[0].text, 'I should look it up.');
    assert.ok(r.output[0].encrypted_content.length > 20);
    assert.deepEqual(JSON.parse(r.output[2].arguments), what);
    assert.equal(r.usage.total_tokens, r.usage.input_tokens + r.usage.output_tokens);
    this.response = r;
  },

  async 'responses: a stream, event by event'() {
    const types = [];
    let sequence = 0, end;
    for await (const e of await talk.responses.create({ ...item, stream: true })) {
      assert.equal(e.sequence_number, sequence++);
      if (types.at(-1) !== e.type) types.push(e.type);
      end = e;
    }
    const alternating = ['response.reasoning_summary_text.delta', 'response.reasoning_text.delta'];
    assert.deepEqual(types.filter((t) => !alternating.includes(t)), [
      'response.created', 'response.in_progress',
      'response.output_item.added', 'response.reasoning_summary_part.added', 'response.content_part.added',
      'response.reasoning_summary_text.done', 'response.reasoning_summary_part.done', 'response.reasoning_text.done',
      'response.content_part.done', 'response.output_item.done',
      'response.output_item.added', 'response.content_part.added', 'response.output_text.delta',
      'response.output_text.done', 'response.content_part.done', 'response.output_item.done',
      'response.output_item.added', 'response.function_call_arguments.delta', 'response.function_call_arguments.done',
      'response.output_item.done', 'response.completed']);
    assert.ok(alternating.every((t) => types.includes(t)));
    const strip = (output) => output.map(({ id, call_id, ...rest }) => rest);
    assert.deepEqual(strip(end.response.output), strip(this.response.output));
  },

  async 'responses: a stream, as a response'() {
    const s = talk.responses.stream(item);
    let text = '', args = '';
    s.on('response.output_text.delta', (e) => (text += e.delta));
    s.on('response.function_call_arguments.delta', (e) => (args += e.delta));
    const r = await s.finalResponse();
    assert.equal(r.output_text, text);
    assert.equal(text, 'Let me see. ');
    assert.deepEqual(JSON.parse(args), what);
  },

  async 'responses: the turn comes back, with and without the reasoning'() {
    const [reasoning, message, call] = this.response.output;
    const back = { type: 'function_call_output', call_id: call.call_id, output: 'It is blue.' };
    const before = this.response.usage.input_tokens;
    const sealed = { ...reasoning, summary: [], content: undefined };
    for (const head of [[reasoning], [sealed], []]) {
      const r = await talk.responses.create({ ...item, input: [user('What is it?'), ...head, message, call, back] });
      assert.ok(r.usage.input_tokens_details.cached_tokens >= before, `${r.usage.input_tokens_details.cached_tokens}`);
      this.size ??= r.usage.input_tokens;
      assert.equal(r.usage.input_tokens, this.size);
    }
  },

  async 'responses: cut, and refused'() {
    const cut = await loop.responses.create({ model: 'gpt-test', input: 'Go.', max_output_tokens: 4 });
    assert.equal(cut.status, 'incomplete');
    assert.equal(cut.incomplete_details.reason, 'max_output_tokens');
    assert.equal(cut.output[0].status, 'incomplete');
    await fails(() => talk.responses.create({ ...item, previous_response_id: 'resp_1' }), sdk.BadRequestError,
                (e) => assert.equal(e.code, 'unsupported_parameter'));
    await fails(() => talk.responses.create({ ...item, input: [{ type: 'function_call_output', call_id: 'nobody',
                                                                 output: '' }] }),
                sdk.BadRequestError, (e) => assert.match(e.message, /No tool call found for call_id nobody/));
    await fails(() => talk.responses.retrieve('resp_1'), sdk.NotFoundError);
  },

  async 'completions'() {
    const c = await talk.completions.create({ model: 'gpt-test', prompt: ['<think>', '</think>'], max_tokens: 8 });
    assert.deepEqual(c.choices.map((x) => x.index), [0, 1]);
    assert.ok(c.choices.every((x) => x.text.length > 0));
    let text = '';
    for await (const x of await talk.completions.create({ model: 'gpt-test', prompt: '</think>', max_tokens: 8,
                                                          stream: true }))
      text += x.choices[0].text;
    assert.equal(text, c.choices[1].text);
  },

  async 'models'() {
    const ids = [];
    for await (const m of talk.models.list()) ids.push(m.id);
    assert.ok(ids.length >= 1);
    assert.equal((await talk.models.retrieve(ids[0])).object, 'model');
  },

  async 'errors have their classes'() {
    const make = (c, more) => () => c.chat.completions.create({ ...brief, ...more });
    await fails(make(talk, { messages: [] }), sdk.BadRequestError, (e) => {
      assert.equal(e.status, 400);
      assert.equal(e.type, 'invalid_request_error');
      assert.equal(e.param, 'messages');
      assert.match(e.requestID, /^req_/);
    });
    await fails(make(talk, { messages: [user([{ type: 'image_url', image_url: { url: 'x' } }])] }), sdk.BadRequestError,
                (e) => assert.equal(e.param, 'messages[0].content[0].type'));
    await fails(make(talk, { stream: true, temperature: 9 }), sdk.BadRequestError,
                (e) => assert.equal(e.param, 'temperature'));
    await fails(make(talk, { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { not: {} } } } }),
                sdk.BadRequestError, (e) => assert.equal(e.code, 'unsupported_keyword'));
    await fails(make(loop, { messages: [user('long '.repeat(60000))] }), sdk.BadRequestError, (e) => {
      assert.equal(e.code, 'context_length_exceeded');
      assert.match(e.message, /maximum context length is \d+ tokens/);
      assert.match(e.message, /prompt is too long: \d+ tokens > \d+ maximum/);
      assert.match(e.message, /exceeds the available context size/);
    });
    await fails(make(client(test.loop, { apiKey: 'wrong' })), sdk.AuthenticationError,
                (e) => assert.equal(e.code, 'invalid_api_key'));
    await fails(make(loop, { model: 'other' }), sdk.NotFoundError, (e) => assert.equal(e.code, 'model_not_found'));
    await fails(() => talk.post('/nothing', { body: {} }), sdk.NotFoundError);
    await fails(make(loop, { messages: [user('x'.repeat(2 << 20))] }), sdk.APIError,
                (e) => assert.deepEqual([e.status, e.code], [413, 'request_too_large']));
    await fails(make(client(1)), sdk.APIConnectionError);
  },

  async 'patience'() {
    await fails(() => client(test.loop, { timeout: 200 }).chat.completions.create(endless),
                sdk.APIConnectionTimeoutError);
  },

  async 'abort'() {
    const s = loop.chat.completions.stream(endless);
    await new Promise((go) => s.once('content', go));
    s.abort();
    await fails(() => s.finalChatCompletion(), sdk.APIUserAbortError);
    const start = Date.now();
    await loop.chat.completions.create(brief); // the engine is free at once, not when it is done
    assert.ok(Date.now() - start < 60000, `${Date.now() - start} ms`);
  },

  async 'a full queue, and retries'() {
    const running = await loop.chat.completions.create({ ...endless, stream: true });
    await begun(running.tee()[0]);
    const waiting = await loop.chat.completions.create({ ...endless, stream: true });
    await fails(() => loop.chat.completions.create(brief), sdk.RateLimitError, (e) => {
      assert.equal(e.code, 'queue_full');
      assert.equal(e.headers.get('retry-after'), '1');
    });
    const patient = client(test.loop, { maxRetries: 50 }).chat.completions.create(brief);
    await sleep(300);
    running.controller.abort();
    waiting.controller.abort();
    assert.equal((await patient).choices[0].finish_reason, 'length');
  },

  async 'a server that stops'() {
    const last = client(test.last);
    const s = await last.chat.completions.create({ ...endless, stream: true });
    let n = 0;
    await fails(async () => {
      for await (const c of s) {
        assert.ok(c);
        if (++n !== 5) continue;
        process.kill(test.pid, 'SIGTERM');
        await sleep(300);
        await fails(() => last.chat.completions.create(brief), sdk.InternalServerError,
                    (x) => assert.deepEqual([x.status, x.code], [503, 'shutting_down']));
        process.kill(test.pid, 'SIGTERM');
      }
    }, sdk.APIError, (e) => assert.equal(e.code, 'shutting_down'));
  },
};

const state = {};
for (const [name, step] of Object.entries(steps)) {
  await step.call(state);
  console.log(`ok: ${name}`);
}
console.log(`steps: ${Object.keys(steps).length}`);
