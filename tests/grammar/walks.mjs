// Random schemas, random replies under their grammars (walk.c), and ajv as the judge of each finished reply.
//
//   node walks.mjs WALK VOCAB.gguf FOLDER [SCHEMAS [WALKS [SEED]]]     default: 200 schemas, 5 walks each
//
// FOLDER has node_modules with the packages of package.json; where it has none they are installed beside it and moved there
// in one step, so that runs at the same moment do not meet; without npm or network the test skips (77). Fails when a finished reply is no JSON or not valid, when a walk finds nothing to write,
// when a schema that is fine is called invalid, or when too many walks do not end.
import { spawn, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const [walk, vocab, folder, nSchemas = "200", nWalks = "5", firstSeed = "1"] = process.argv.slice(2);

// --- the judges ---

function packages() {
  const require = createRequire(join(folder, "package.json"));
  const load = () => ({
    Draft2020: require("ajv/dist/2020").default,
    Draft7: require("ajv").default,
    Draft4: require("ajv-draft-04").default,
    formats: require("ajv-formats").default,
  });
  const there = join(folder, "node_modules");
  if (!existsSync(there)) {
    mkdirSync(folder, { recursive: true });
    const own = mkdtempSync(`${folder}-`);
    copyFileSync(join(dirname(fileURLToPath(import.meta.url)), "package.json"), join(own, "package.json"));
    const npm = spawnSync("npm", ["install", "--no-audit", "--no-fund", "--silent"], { cwd: own, timeout: 120000 });
    try {
      if (npm.status === 0) renameSync(join(own, "node_modules"), there);
    } catch { // another run was faster
    }
    rmSync(own, { recursive: true, force: true });
    if (!existsSync(there)) {
      console.log("skipped: npm cannot install ajv here");
      process.exit(77);
    }
  }
  return load();
}

const { Draft2020, Draft7, Draft4, formats } = packages();
const judges = Object.fromEntries(Object.entries({ 2020: Draft2020, 7: Draft7, 4: Draft4 }).map(([draft, Judge]) => {
  const ajv = new Judge({
    strict: false, unicodeRegExp: true, validateFormats: true, multipleOfPrecision: 9, logger: false,
  });
  formats(ajv);
  return [draft, ajv];
}));

function judge(draft, schema) {
  judges[draft].removeSchema(); // all that it has seen, its own meta-schemas aside
  return judges[draft].compile(schema);
}

// --- random schemas ---

let state = 0;
function random() { // mulberry32
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const chance = (p) => random() < p;
const oneOf = (list) => list[below(list.length)];
const some = (list, p) => list.filter(() => chance(p));

const NAMES = ["a", "ab", "id", "name", "x_1", "é", "with space", 'q"uote', "n\n", "kind"];
const PATTERNS = ["^[a-z]+$", "^a", "b$", "ab", "^(foo|bar)-[0-9]{2,4}$", "[0-9]", "^\\p{Lu}", "^x?y*z+$", "^.{2,5}$", "a|b",
  "^$", "\\d\\d", "^[^\"\\\\]*$", "\\s", "^\\u00e9+$", "(?:ab){2}"];
const FORMATS = ["date", "time", "date-time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "uri", "json-pointer",
  "byte", "uri-reference", "relative-json-pointer"];
const SCALARS = [null, true, false, 0, 1, -3, 2.5, 1e21, "", "a", "ab", "é", 'q"', "\\", "\u0001", "😀"];
const NUMBERS = [-1000, -7, -2.5, -1, -0.01, 0, 0.1, 0.5, 1, 3, 9.99, 10, 42, 1000, 123456.789];

const value = (depth) =>
  depth > 0 && chance(0.2) ? Array.from({ length: below(3) }, () => value(depth - 1))
  : depth > 0 && chance(0.2) ? Object.fromEntries(some(NAMES, 0.2).map((k) => [k, value(depth - 1)]))
  : oneOf(SCALARS);

function pair(low, high) {
  return low <= high ? [low, high] : [high, low];
}

function numberOf(s, g, integer) {
  const [low, high] = pair(oneOf(NUMBERS), oneOf(NUMBERS));
  if (chance(0.4)) s.minimum = low;
  if (chance(0.4)) s.maximum = high;
  if (g.draft !== 4) {
    if (chance(0.15)) s.exclusiveMinimum = low;
    if (chance(0.15)) s.exclusiveMaximum = high;
  } else if (s.minimum !== undefined && chance(0.3)) {
    s.exclusiveMinimum = true;
  }
  if (chance(0.2)) s.multipleOf = integer ? oneOf([1, 2, 3, 5, 7]) : oneOf([0.1, 0.5, 0.25, 1, 3, 0.01]);
  if (s.multipleOf) { // the judge divides doubles, to which large multiples are none
    s.minimum = -1000;
    s.maximum = 1000;
  }
}

function stringOf(s) {
  const [low, high] = pair(below(4), below(12));
  if (chance(0.3)) s.minLength = low;
  if (chance(0.3)) s.maxLength = high;
  if (chance(0.3)) s.pattern = oneOf(PATTERNS);
  else if (chance(0.25)) s.format = oneOf(FORMATS);
}

function arrayOf(s, g, depth) {
  const [low, high] = pair(below(3), below(5));
  const tuple = Array.from({ length: below(3) }, () => schema(g, depth - 1));
  if (chance(0.3) && tuple.length) {
    if (g.draft === 2020) s.prefixItems = tuple;
    else s.items = tuple;
    if (chance(0.6)) s[g.draft === 2020 ? "items" : "additionalItems"] = chance(0.4) ? false : schema(g, depth - 1);
  } else if (chance(0.8)) {
    s.items = schema(g, depth - 1);
  }
  if (chance(0.4)) s.minItems = low;
  if (chance(0.5)) s.maxItems = high;
  if (s.maxItems <= 1 && chance(0.3)) s.uniqueItems = true;
}

function objectOf(s, g, depth) {
  const names = some(NAMES, 0.25), [low, high] = pair(below(3), below(5));
  if (names.length) s.properties = Object.fromEntries(names.map((k) => [k, schema(g, depth - 1)]));
  const required = some([...names, oneOf(NAMES)], 0.4);
  if (required.length) s.required = [...new Set(required)];
  if (chance(0.5)) s.additionalProperties = chance(0.6) ? false : schema(g, depth - 1);
  if (chance(0.15)) s.patternProperties = Object.fromEntries(some(PATTERNS, 0.12).map((p) => [p, schema(g, depth - 1)]));
  if (g.draft !== 4 && chance(0.1)) s.propertyNames = chance(0.5) ? { pattern: oneOf(PATTERNS) } : { enum: some(NAMES, 0.4).concat("k") };
  if (chance(0.2)) s.minProperties = low;
  if (chance(0.2)) s.maxProperties = high;
}

function typed(g, depth) {
  const all = ["null", "boolean", "integer", "number", "string", "array", "object"];
  const type = depth <= 0 ? oneOf(all.slice(0, 5)) : oneOf([...all, "string", "object", "object", "array"]);
  const s = chance(0.9) ? { type } : {};
  if (chance(0.08)) s.type = some(all, 0.4).concat(type).filter((t, i, l) => l.indexOf(t) === i);
  if (type === "integer" || type === "number") numberOf(s, g, type === "integer");
  if (type === "string") stringOf(s);
  if (type === "array" && depth > 0) arrayOf(s, g, depth);
  if (type === "object" && depth > 0) objectOf(s, g, depth);
  if (s.type && chance(0.04)) s.nullable = true;
  return s;
}

function schema(g, depth) {
  const r = random();
  if (r < 0.03) return g.draft === 4 ? {} : true;
  if (r < 0.1) return { enum: [...new Set(Array.from({ length: 1 + below(4) }, () => value(1)).map((v) => JSON.stringify(v)))].map((t) => JSON.parse(t)) };
  if (r < 0.13 && g.draft !== 4) return { const: value(2) };
  if (r < 0.2 && g.defs) return { $ref: `#/${g.draft === 2020 ? "$defs" : "definitions"}/d${below(g.defs)}`, ...(chance(0.3) && g.draft === 2020 ? typed(g, depth - 1) : {}) };
  if (depth > 0 && r < 0.27) return { anyOf: Array.from({ length: 1 + below(3) }, () => schema(g, depth - 1)), ...(chance(0.3) ? typed(g, depth - 1) : {}) };
  if (depth > 0 && r < 0.32) return { allOf: Array.from({ length: 1 + below(2) }, () => typed(g, depth - 1)), ...(chance(0.5) ? typed(g, depth) : {}) };
  if (depth > 0 && r < 0.38) return { oneOf: Array.from({ length: 1 + below(3) }, () => schema(g, depth - 1)), ...(chance(0.2) ? typed(g, depth - 1) : {}) };
  return typed(g, depth);
}

function whole(seed) {
  state = seed;
  const g = { draft: chance(0.75) ? 2020 : chance(0.6) ? 7 : 4, defs: chance(0.35) ? 1 + below(3) : 0 };
  const s = schema(g, 3);
  const root = typeof s === "object" && !("$ref" in s && g.draft !== 2020) ? s : { allOf: [s === true ? {} : s] };
  if (g.defs) root[g.draft === 2020 ? "$defs" : "definitions"] = Object.fromEntries(Array.from({ length: g.defs }, (_, i) => [`d${i}`, schema(g, 2)]));
  if (g.draft === 7) root.$schema = "http://json-schema.org/draft-07/schema#";
  if (g.draft === 4) root.$schema = "http://json-schema.org/draft-04/schema#";
  return { draft: g.draft, root, how: { any_order: chance(0.3), whitespace: chance(0.5) ? 0 : 1 + below(2) } };
}

// --- the run ---

const child = spawn(walk, [vocab], { stdio: ["pipe", "pipe", "inherit"] });
const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
const count = { schemas: 0, compiled: 0, refused: {}, finished: 0, unfinished: 0, unjudged: 0, faults: 0 };

// Does the text hold a number that is another one as a double? The grammar is exact, the judge is not: to it
// 83990910568835688609.5 is an integer.
function beyondDoubles(text) {
  const numbers = text.replace(/"(?:[^"\\]|\\.)*"/g, '""').match(/[0-9.]+/g) ?? [];
  return numbers.some((n) => n.replace(".", "").replace(/^0+/, "").length > 15);
}

function fault(seed, text, root) {
  if (count.faults++ < 20) console.log(`seed ${seed}: ${text}\n  ${JSON.stringify(root)}`);
}

// Schemas are sent ahead, so that the walks of the next run while the replies of this one are judged.
const sent = [];
let made = 0;
function send() {
  while (made < Number(nSchemas) && sent.length < 3) {
    const seed = Number(firstSeed) + made++, { draft, root, how } = whole(seed);
    let check;
    try {
      check = judge(draft, root);
    } catch (e) { // ajv is stricter about what it compiles; such a schema has no judge
      continue;
    }
    count.schemas++;
    child.stdin.write(JSON.stringify({ schema: JSON.stringify(root), walks: Number(nWalks), seed, ...how }) + "\n");
    sent.push({ seed, root, check });
  }
}

for (send(); sent.length > 0; send()) {
  const { seed, root, check } = sent.shift();
  const { value: line, done } = await lines.next();
  if (done) {
    fault(seed, "the driver died", root);
    break;
  }
  send();
  const reply = JSON.parse(line);
  if (reply.code) {
    count.refused[reply.code] = (count.refused[reply.code] ?? 0) + 1;
    if (reply.code === "invalid_schema") fault(seed, reply.message, root);
    continue;
  }
  count.compiled++;
  if (reply.stuck) {
    fault(seed, "a walk found nothing to write", root);
    continue;
  }
  for (const text of reply.walks) {
    if (text === null) {
      count.unfinished++;
      continue;
    }
    count.finished++;
    let v;
    try {
      v = JSON.parse(text);
    } catch {
      fault(seed, `no JSON: ${text}`, root);
      continue;
    }
    let valid = true;
    try {
      valid = check(v);
    } catch { // ajv does not see the end of a reference that leads back to itself
      count.unjudged++;
    }
    if (!valid && beyondDoubles(text)) {
      count.unjudged++;
      continue;
    }
    if (!valid) fault(seed, `not valid: ${text}: ${JSON.stringify(check.errors[0])}`, root);
  }
}
child.stdin.end();
const walks = count.finished + count.unfinished;
console.log(`${count.schemas} schemas, ${count.compiled} compiled, refused ${JSON.stringify(count.refused)}; ` +
  `${walks} walks, ${count.finished} finished, ${count.unjudged} without a verdict, ${count.faults} faults`);
process.exit(count.faults || count.compiled * 2 < count.schemas || (count.unfinished + count.unjudged) * 20 > walks ? 1 : 0);
