import { expect, test } from "vitest";
import { ago, brief, contentsOf, excerpt, span, until } from "./format.ts";

test("a large number is told in little room", () => {
  expect([4, 9_999, 1_000_000].map(brief)).toEqual(["4", "10K", "1M"]);
});

test("spans are short, at any length", () => {
  expect([0, 340, 4_200, 59_000, 180_000, 7_200_000, 400_000_000].map(span)).toEqual(
    ["0 ms", "340 ms", "4.2 s", "59 s", "3 min", "2 h", "5 d"],
  );
});

test("times before and behind now", () => {
  const now = Date.parse("2026-11-18T12:00:00Z");
  expect(ago("2026-11-18T11:59:56.500Z", now)).toBe("3 s");
  expect(until("2026-11-18T12:00:03.200Z", now)).toBe("in 4 s");
  expect(until("2026-11-18T11:00:00Z", now)).toBe("now");
});

test("an excerpt is one line", () => {
  expect(excerpt({ a: 1, b: "x\ny" })).toBe('"a":1,"b":"x\\ny"');
  expect(excerpt("x".repeat(300), 10)).toHaveLength(11);
});

test("stored content is found in any result, once", () => {
  const id = "gc_01a1f214-23b4-71b6-8c90-e09bc27581bf";
  expect(contentsOf({ ids: [id], urls: [`/api/v1/content/${id}`] })).toEqual([id]);
  expect([undefined, null, "gc_1", 7].flatMap(contentsOf)).toEqual([]);
});
