import { expect, test } from "vitest";
import { fieldsOf, payloadOf, type Schema } from "./schema.ts";

const SCHEMA: Schema = {
  type: "object",
  required: ["text", "size"],
  properties: {
    text: { type: "string", description: "what to do" },
    size: { type: "integer" },
    share: { anyOf: [{ type: "number" }, { type: "null" }], default: null },
    loud: { type: "boolean", default: false },
    kind: { $ref: "#/$defs/Kind", default: "a" },
    more: { type: "array", items: { type: "string" } },
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
  const texts = { text: "hello", size: "3", share: "0.5", loud: "true", kind: "b", more: '["x"]' };
  expect(payloadOf(fields, texts)).toEqual({ text: "hello", size: 3, share: 0.5, loud: true, kind: "b", more: ["x"] });
});

test("what is left empty is left out, and defaults stay", () => {
  expect(payloadOf(fields, { text: "", size: "1" })).toEqual({ text: "", size: 1, loud: false, kind: "a" });
});

test("what cannot be is told by name", () => {
  expect(payloadOf(fields, { text: "x" })).toBe("size is needed.");
  expect(payloadOf(fields, { text: "x", size: "1.5" })).toBe("size: 1.5 is no integer.");
  expect(payloadOf(fields, { text: "x", size: "1", more: "[" })).toBe("more: [ is no JSON.");
});
