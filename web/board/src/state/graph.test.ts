import { expect, test } from "vitest";
import { layered } from "./graph.ts";

const node = (id: string, ...after: string[]) => ({ id, after });
const layers = (...nodes: ReturnType<typeof node>[]) =>
  Object.fromEntries(layered(nodes).nodes.map(({ id, layer }) => [id, layer]));

test("each stands right of all that it waits for", () => {
  expect(layers(node("d", "b", "c"), node("b", "a"), node("c"), node("a"))).toEqual({ a: 0, b: 1, c: 0, d: 2 });
});

test("edges that need not cross do not", () => {
  const { nodes } = layered([node("a"), node("b"), node("x", "b"), node("y", "a")]);
  const row = Object.fromEntries(nodes.map(({ id, row: at }) => [id, at]));
  expect((row.a ?? 0) < (row.b ?? 0)).toBe((row.y ?? 0) < (row.x ?? 0));
});

test("what is not there is not waited for, and a circle ends", () => {
  expect(layers(node("a", "gone"))).toEqual({ a: 0 });
  expect(Object.keys(layers(node("a", "b"), node("b", "a")))).toHaveLength(2);
});

test("a wide one is placed at once", () => {
  const many = Array.from({ length: 2_000 }, (_, n) => node(`n${n}`, "first"));
  expect(layered([node("first"), ...many, node("last", ...many.map(({ id }) => id))])).toMatchObject({ layers: 3, rows: 2_000 });
});

test("a long one too", () => {
  const chain = Array.from({ length: 1_000 }, (_, n) => node(`n${n}`, ...(n ? [`n${n - 1}`] : [])));
  expect(layered(chain).layers).toBe(1_000);
});
