import type { OutlastEvent } from "@outlast/client";
import { expect, test } from "vitest";
import type { Task } from "../api.ts";
import { EMPTY, fold, overlay, pulse, SLOT_MS, SLOTS } from "./board.ts";

const at = (ms: number): string => new Date(1_800_000_000_000 + ms).toISOString();
let cursor = 0;

function event(kind: string, data: OutlastEvent["data"]): OutlastEvent {
  cursor += 1;
  return { kind, cursor: String(cursor), data: { task_id: "a", attempt: 1, at: at(cursor), ...data } };
}

const TASK = {
  id: "a", type: "t", status: "ready", attempt: 0, worker: null, updated_at: at(0), progress: null, error: null,
} as unknown as Task;
const half = { percent: 50, message: "half", elapsed_ms: 1, updated_at: at(5), data: {} };

test("the log is laid over a record that is older", () => {
  const board = fold(EMPTY, [event("state", { status: "running", worker: "w" }), event("progress", { progress: half })]);
  const now = overlay(TASK, board.tasks.get("a"));
  expect(now).toMatchObject({ status: "running", attempt: 1, worker: "w", progress: { percent: 50 } });
});

test("a record that is newer than the log stays as it is", () => {
  const board = fold(EMPTY, [event("state", { status: "running" }), event("progress", { progress: half })]);
  const read = { ...TASK, status: "completed", updated_at: at(1e6), progress: { ...half, percent: 90, updated_at: at(9) } } as Task;
  expect(overlay(read, board.tasks.get("a"))).toBe(read);
});

test("a new attempt begins without the progress of the one before", () => {
  let board = fold(EMPTY, [event("state", { status: "running" }), event("progress", { progress: half })]);
  board = fold(board, [event("state", { status: "retrying", error: { code: "", type: "E", message: "m" } })]);
  expect(overlay(TASK, board.tasks.get("a")).error).toMatchObject({ type: "E" });
  board = fold(board, [event("state", { status: "running", attempt: 2 })]);
  expect(overlay(TASK, board.tasks.get("a"))).toMatchObject({ attempt: 2, progress: null });
});

test("it is the same, however the events are cut into pieces", () => {
  const events = [
    event("state", { status: "running" }), event("progress", { progress: half }),
    event("done", { status: "completed", queue: "q" }), event("circuit", { task_id: null }),
  ];
  const once = fold(EMPTY, events);
  const piecewise = events.reduce((board, one) => fold(board, [one]), EMPTY);
  expect(piecewise).toEqual(once);
});

test("a fold changes nothing of the board before", () => {
  const before = fold(EMPTY, [event("done", { status: "dead", queue: "q" })]);
  const copy = structuredClone(before);
  fold(before, [event("done", { status: "dead", queue: "q" }), event("state", { status: "ready" })]);
  expect(before).toEqual(copy);
});

test("what ended is counted by queue and slot, for five minutes", () => {
  const done = (ms: number, queue: string) => event("done", { at: at(ms), status: "completed", queue });
  const board = fold(EMPTY, [done(0, "q"), done(1, "q"), done(SLOT_MS, "r"), done(SLOT_MS * 2, "q")]);
  const now = Date.parse(at(SLOT_MS * 2));
  expect(pulse(board, now).slice(-3)).toEqual([2, 1, 1]);
  expect(pulse(board, now, "q").slice(-3)).toEqual([2, 0, 1]);
  const later = fold(board, [done(SLOT_MS * (SLOTS + 5), "q")]);
  expect(later.ended).toHaveLength(1);
});

test("it says what has to be read again", () => {
  expect([...fold(EMPTY, [event("circuit", {})]).stale]).toEqual(["limits"]);
  expect(fold(EMPTY, [event("state", { status: "ready" })]).stale).toContain("counts");
  expect(fold(EMPTY, [event("progress", { progress: half })]).stale.size).toBe(0);
  expect(fold(EMPTY, [event("reset", { at: null, task_id: null })]).stale).toContain("audit");
});

test("it holds a bounded number of tasks, and forgets the quietest", () => {
  const many = Array.from({ length: 6_000 }, (_, n) => event("state", { task_id: `t${n}`, status: "ready" }));
  const { tasks } = fold(EMPTY, many);
  expect(tasks.size).toBe(5_000);
  expect(tasks.has("t0")).toBe(false);
  expect(tasks.has("t5999")).toBe(true);
});
