// Completing a filter while it is typed: fields first, then their values. Pure.
//
// The server reads the filter; this only helps to write one.

import { quoted, STATUSES } from "../words.ts";

export interface Known {
  types: readonly string[];
  queues: readonly string[];
}

export interface Completion {
  /** What is offered, and what it means. */
  text: string;
  means: string;
}

const FIELDS: readonly (readonly [string, string])[] = [
  ["status:", "ready, running, dead, …"],
  ["type:", "the task's type"],
  ["queue:", "the queue it waits in"],
  ["payload.", "a value in the payload, as payload.user:ada"],
  ["tag:", "one of its tags"],
  ["age>", "created longer ago than, as age>1h"],
  ["age<", "created within, as age<10m"],
  ["ended<", "ended within"],
  ["error:", "the fingerprint of its last error"],
  ["session:", "a session's tasks"],
  ["user:", "a user's tasks"],
  ["workflow:", "a workflow's tasks"],
  ["parent:", "the children of a task"],
  ["lane:", "primary or retry"],
  ["limit:", "tasks that count for a limit"],
  ["worker:", "what a worker runs"],
  ["reason:", "why it died or was cancelled"],
  ["unique:", "by unique key"],
  ["id:", "one task, or several"],
  ["priority:", "0 first"],
  ["created>", "after a moment, as created>2026-11-01"],
  ["attr.", "a value that the type declares"],
];
const SPANS = ["10m", "1h", "1d", "7d"];
const MOST = 8;

/** What could stand where the caret is, and from where on it would replace the text. */
export function complete(text: string, caret: number, known: Known): { from: number; offers: Completion[] } {
  const start = text.slice(0, caret).search(/\S*$/);
  const word = text.slice(start, caret);
  const minus = word.startsWith("-") ? "-" : "";
  const bare = word.slice(minus.length);
  const value = /^([a-z_]+[:<>])(?:.*,)?([^,]*)$/.exec(bare);
  if (value !== null) {
    const [, field = "", begun = ""] = value;
    const offers = valuesOf(field, known)
      .filter((one) => one.toLowerCase().startsWith(begun.toLowerCase()) && one !== begun)
      .map((one) => ({ text: quoted(one), means: "" }));
    return { from: caret - begun.length, offers: offers.slice(0, MOST) };
  }
  const offers = FIELDS.filter(([field]) => field.startsWith(bare) && field !== bare).map(([field, means]) => ({
    text: minus + field,
    means,
  }));
  return { from: start, offers: offers.slice(0, MOST) };
}

/** The text with an offer taken, and where the caret is then. */
export function take(text: string, caret: number, from: number, offer: Completion): { text: string; caret: number } {
  const gap = /[:<>.]$/.test(offer.text) ? "" : " ";
  const head = text.slice(0, from) + offer.text + gap;
  return { text: head + text.slice(caret).replace(/^ /, gap ? "" : " "), caret: head.length };
}

function valuesOf(field: string, known: Known): readonly string[] {
  switch (field) {
    case "status:": return STATUSES;
    case "type:": return known.types;
    case "queue:": return known.queues;
    case "lane:": return ["primary", "retry"];
    case "reason:": return ["attempts", "permanent", "never", "timeout", "out_of_memory", "stalled", "expired", "upstream", "skipped"];
    case "age>": case "age<": case "ended>": case "ended<": return SPANS;
    default: return [];
  }
}

/** The filter with other statuses; none takes that part away. */
export function withStatus(filter: string, status: string): string {
  const rest = filter.replace(/(^|\s)status:\S+/g, " ").replace(/\s+/g, " ").trim();
  return [status && `status:${status}`, rest].filter(Boolean).join(" ");
}

export const statusOf = (filter: string): string => /(?:^|\s)status:(\S+)/.exec(filter)?.[1] ?? "";
