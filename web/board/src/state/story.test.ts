import type { OutlastEvent } from "@outlast/client";
import { expect, test } from "vitest";
import { tell, UNTOLD } from "./story.ts";

let cursor = 0;
function event(kind: string, data: OutlastEvent["data"] = {}): OutlastEvent {
  cursor += 1;
  return { kind, cursor: String(cursor), data: { attempt: 1, at: new Date(cursor).toISOString(), ...data } };
}

test("chunks are put together; what is no text is a line of JSON", () => {
  const story = tell(UNTOLD, [event("chunk", { chunk: "one " }), event("chunk", { chunk: "two " }), event("chunk", { chunk: { n: 3 } })]);
  expect(story.output).toBe('one two {"n":3}\n');
});

test("what a failed attempt said is taken back", () => {
  const story = tell(UNTOLD, [event("chunk", { chunk: "wrong" }), event("rollback"), event("chunk", { chunk: "right" })]);
  expect(story).toMatchObject({ output: "right", rolledBack: 1 });
});

test("it is the same, however the events are cut into pieces", () => {
  const events = [
    event("state", { status: "running", worker: "w" }), event("chunk", { chunk: "a" }), event("step", { step: "fetch" }),
    event("rollback"), event("state", { status: "retrying", outcome: "failed" }), event("state", { status: "running", attempt: 2 }),
    event("chunk", { chunk: "b" }), event("done", { status: "completed" }),
  ];
  const once = tell(UNTOLD, events);
  expect(events.reduce((story, one) => tell(story, [one]), UNTOLD)).toEqual(once);
  expect(once).toMatchObject({ output: "b", isOver: true });
  expect(once.steps.map(({ name }) => name)).toEqual(["fetch"]);
  expect(Object.keys(once.began)).toEqual(["1", "2"]);
});

test("how an attempt ended is told in words", () => {
  const ends = [["retrying", "timed_out"], ["blocked", "waiting"], ["ready", "released"]];
  const story = tell(UNTOLD, ends.map(([status, outcome]) => event("state", { status: status as "ready", outcome })));
  expect(story.moments.map(({ text }) => text)).toEqual(
    ["retrying after it timed out", "blocked after it began to wait", "ready after it was given back"]);
});

test("a redrive opens it again", () => {
  const over = tell(UNTOLD, [event("done", { status: "dead", reason: "attempts" })]);
  expect(over.isOver).toBe(true);
  expect(tell(over, [event("state", { status: "ready", redriven: true })]).isOver).toBe(false);
});

test("its output is bounded, and ends with the newest", () => {
  const story = tell(UNTOLD, [event("chunk", { chunk: "x".repeat(600_000) }), event("chunk", { chunk: "end" })]);
  expect(story.output).toHaveLength(500_000);
  expect(story.output.endsWith("end")).toBe(true);
});
