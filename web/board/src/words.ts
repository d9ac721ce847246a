// What the server and the filter language call things. Pure, and without a page around it.

import type { components, Task } from "@outlast/client";

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

/** The dead of a group. Without a fingerprint (they expired, their worker was lost) the reason tells them apart. */
export const alike = ({ type, fingerprint, reason }: components["schemas"]["DeadGroup"]): string =>
  `status:dead type:${quoted(type)} ${fingerprint ? `error:${fingerprint}` : `reason:${quoted(reason ?? "")}`}`;
