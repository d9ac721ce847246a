// What the server and the filter language call things. Pure, and without a page around it.

import type { Task } from "@outlast/client";

export type Status = Task["status"];

export const STATUSES: readonly Status[] = [
  "running", "ready", "retrying", "scheduled", "throttled", "blocked", "stalled",
  "dead", "cancelled", "completed",
];
export const FINAL: readonly string[] = ["completed", "cancelled", "dead"];
/** What a retry takes. */
export const AGAIN: readonly string[] = ["dead", "cancelled", "retrying"];

/** Where the tasks of a filter are. */
export const tasksAt = (filter: string): string => `/tasks?q=${encodeURIComponent(filter)}`;

/** A value as the filter language takes it. */
export const quoted = (text: string): string =>
  /^[^\s,"]+$/.test(text) ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
