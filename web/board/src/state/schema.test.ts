import { expect, test } from "vitest";
import { fieldsOf, lengthOf, payloadOf, type Schema, textsOf, withItem, withoutItem } from "./schema.ts";

const SCHEMA: Schema = {
  type: "object",
  required: ["text", "size"],
  properties: {
    text: { type: "string", description: "what to do" },
    size: { type: "integer" },
    share: { anyOf: [{ type: "number" }, { type: "null" }], default: null },
    loud: { type: "boolean", default: false },
    kind: { $ref: "#/$defs/Kind", default: "a" },
    more: { type: "object", additionalProperties: { type: "string" } } as Schema,
  },
  $defs: { Kind: { enum: ["a", "b"], type: "string" } },
};
const fields = fieldsOf(SCHEMA);

test("each property is a field of a kind that fits", () => {
  expect(fields.map(({ name, kind }) => `${name}:${kind}`)).toEqual([
    "text:text", "size:integer", "share:number", "loud:boolean", "kind:choice", "more:json",
  ]);
  expect(fields.filter(({ required }) => required).map(({ name }) => name)).toEqual(["text", "size"]);
  expect(fields[4]).toMatchObject({ choices: ["a", "b"], initial: "a" });
});

test("what is filled in becomes a payload", () => {
  const texts = { text: "hello", size: "3", share: "0.5", loud: "true", kind: "b", more: '{"x":"y"}' };
  expect(payloadOf(fields, texts)).toEqual({ text: "hello", size: 3, share: 0.5, loud: true, kind: "b", more: { x: "y" } });
});

test("what is left empty is left out, and defaults stay", () => {
  expect(payloadOf(fields, { text: "", size: "1" })).toEqual({ text: "", size: 1, loud: false, kind: "a" });
});

test("what cannot be is told by name", () => {
  expect(payloadOf(fields, { text: "x" })).toBe("size is needed.");
  expect(payloadOf(fields, { text: "x", size: "1.5" })).toBe("size: 1.5 is no integer.");
  expect(payloadOf(fields, { text: "x", size: "1", more: "[" })).toBe("more: [ is no JSON.");
});

const DEEP: Schema = {
  type: "object",
  required: ["who", "tags", "note"],
  properties: {
    who: { $ref: "#/$defs/Person", description: "whose it is" },
    other: { anyOf: [{ $ref: "#/$defs/Person" }, { type: "null" }], default: null },
    tags: { type: "array", items: { type: "string" } },
    people: { type: "array", items: { $ref: "#/$defs/Person" } },
    sizes: { type: "array", items: { type: "integer" }, default: [1, 2, 3] },
    note: { anyOf: [{ type: "string" }, { type: "null" }] },
    tree: { $ref: "#/$defs/Tree" },
    mode: { const: "fast", type: "string" },
  },
  $defs: {
    Person: { type: "object", required: ["name"], properties: { name: { type: "string" }, age: { anyOf: [{ type: "integer" }, { type: "null" }], default: null } } },
    Tree: { type: "object", properties: { below: { type: "array", items: { $ref: "#/$defs/Tree" } } } },
  },
};
const deep = fieldsOf(DEEP);
const fieldAt = (name: string) => deep.find((field) => field.name === name)!;

test("objects and lists are fields within fields", () => {
  expect(deep.map(({ name, kind }) => `${name}:${kind}`)).toEqual([
    "who:object", "other:object", "tags:list", "people:list", "sizes:list", "note:text", "tree:object", "mode:choice",
  ]);
  expect(fieldAt("who").fields.map(({ path, kind }) => `${path}:${kind}`)).toEqual(["who.name:text", "who.age:integer"]);
  expect(fieldAt("people").item(1).fields[0]).toMatchObject({ path: "people.1.name", required: true });
});

test("what is typed into them becomes one payload", () => {
  const texts = { "who.name": "Ada", "who.age": "36", "tags#": "2", "tags.0": "a", "tags.1": "b", "people#": "1", "people.0.name": "Eve" };
  expect(payloadOf(deep, texts)).toEqual({
    who: { name: "Ada", age: 36 }, tags: ["a", "b"], people: [{ name: "Eve" }], sizes: [1, 2, 3], note: null,
  });
});

test("an object that may be left out is left out until something is typed into it", () => {
  expect(payloadOf(deep, { "other.name": "Bo", note: "x" })).toMatchObject({ other: { name: "Bo" }, tags: [], note: "x" });
  expect(payloadOf(deep, { "other.age": "1.5" })).toBe("other.age: 1.5 is no integer.");
});

test("items of a list come and go", () => {
  const sizes = fieldAt("sizes");
  expect(lengthOf(sizes, {})).toBe(3);
  expect(payloadOf([sizes], withoutItem(sizes, {}, 1))).toEqual({ sizes: [1, 3] });
  const people = fieldAt("people");
  const two = { ...withItem(people, withItem(people, {})), "people.0.name": "Ada", "people.1.name": "Eve", "people.1.age": "7" };
  expect(payloadOf([people], withoutItem(people, two, 0))).toEqual({ people: [{ name: "Eve", age: 7 }] });
  expect(payloadOf([sizes], { "sizes#": "0" })).toEqual({ sizes: [] });
});

test("a payload becomes the texts that make it", () => {
  const payload = { who: { name: "Ada", age: 36 }, tags: ["a"], people: [{ name: "Eve" }], sizes: [], note: null, mode: "fast" };
  expect(payloadOf(deep, textsOf(deep, payload))).toEqual(payload);
});
