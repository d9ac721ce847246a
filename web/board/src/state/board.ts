// The board: what the log has told since the page asked for its snapshot. A pure fold over events.
//
// Records come from the API; the board is laid over them where the log knows something newer.

import type { OutlastEvent } from "@outlast/client";
import type { Shapes, Task } from "../api.ts";
import type { Status } from "../words.ts";

/** What the log has told of a task. */
export interface Seen {
  status?: Status;
  attempt?: number;
  worker?: string | null;
  progress?: Shapes["Progress"] | null;
  error?: Task["error"];
  /** Of the newest event that changed its status. */
  at?: string;
}

/** What ended in a queue within one slot of time. */
export interface Ended {
  completed: number;
  dead: number;
}

export interface Bucket {
  slot: number;
  queues: Readonly<Record<string, Ended>>;
}

export interface Board {
  tasks: ReadonlyMap<string, Seen>;
  /** The last five minutes, oldest first; slots in which nothing ended are left out. */
  ended: readonly Bucket[];
  /** Reads that are no longer true: the names of what to ask for again. */
  stale: ReadonlySet<Topic>;
}

export type Topic =
  | "tasks" | "counts" | "dead" | "limits" | "workers" | "workflows" | "schedules" | "approvals"
  | "sessions" | "webhooks" | "usage" | "audit";

export const SLOT_MS = 5_000;
export const SLOTS = 60;
const MOST_TASKS = 5_000;
export const EMPTY: Board = { tasks: new Map(), ended: [], stale: new Set() };
export const TOPICS: readonly Topic[] = [
  "tasks", "counts", "dead", "limits", "workers", "workflows", "schedules", "approvals", "sessions",
  "webhooks", "usage", "audit",
];
/** What the multiplexed stream is asked for: not the output of every task. */
export const KINDS = [
  "state", "progress", "done", "rollback", "signal", "question", "circuit", "alert", "overdue",
  "audit", "usage",
];

const MOVED: readonly Topic[] = ["tasks", "counts", "dead", "limits", "workers", "workflows", "schedules", "approvals", "sessions"];
const CONCERNS: Record<string, readonly Topic[]> = {
  state: MOVED,
  done: [...MOVED, "webhooks"],
  signal: ["approvals"],
  question: ["approvals", "tasks"],
  circuit: ["limits"],
  overdue: ["sessions"],
  usage: ["usage"],
  audit: ["audit", "counts", "limits", "schedules", "webhooks"],
  reset: TOPICS,
};

/** The board after some more events. */
export function fold(board: Board, events: readonly OutlastEvent[]): Board {
  const tasks = new Map(board.tasks);
  const stale = new Set(board.stale);
  let ended = board.ended;
  for (const { kind, data } of events) {
    for (const topic of CONCERNS[kind] ?? []) stale.add(topic);
    const id = data.task_id;
    if (!id) continue;
    const was = tasks.get(id) ?? {};
    if (kind === "progress" && data.progress) {
      put(tasks, id, { ...was, progress: data.progress });
    } else if ((kind === "state" || kind === "done") && data.status && data.at) {
      put(tasks, id, { ...was, ...told(data) });
      if (kind === "done") ended = counted(ended, data);
    }
  }
  return { tasks, ended, stale };
}

/** A record with what the log knows better. */
export function overlay(task: Task, seen: Seen | undefined): Task {
  if (seen === undefined) return task;
  const newer: Partial<Task> = {};
  if (seen.at !== undefined && seen.at > task.updated_at) {
    if (seen.status) newer.status = seen.status;
    if (seen.attempt !== undefined) newer.attempt = seen.attempt;
    if (seen.worker !== undefined) newer.worker = seen.worker;
    if (seen.error) newer.error = seen.error;
    if (seen.progress === null) newer.progress = null;
  }
  if (seen.progress && seen.progress.updated_at > (task.progress?.updated_at ?? "")) {
    newer.progress = seen.progress;
  }
  return Object.keys(newer).length === 0 ? task : { ...task, ...newer };
}

/** How much ended per slot, for a sparkline up to `now`. */
export function pulse(board: Board, now: number, queue?: string): number[] {
  const last = Math.floor(now / SLOT_MS);
  const found = new Array<number>(SLOTS).fill(0);
  for (const { slot, queues } of board.ended) {
    const place = SLOTS - 1 - (last - slot);
    if (place < 0 || place >= SLOTS) continue;
    const counted = queue === undefined ? Object.values(queues) : [queues[queue]];
    for (const one of counted) found[place] = (found[place] ?? 0) + (one ? one.completed + one.dead : 0);
  }
  return found;
}

function told(data: OutlastEvent["data"]): Seen {
  const seen: Seen = { at: data.at ?? "" };
  if (data.status) seen.status = data.status;
  if (data.status === "running") {
    if (data.attempt !== undefined) seen.attempt = data.attempt;
    seen.progress = null; // of the attempt before
    seen.worker = (data.worker as string | undefined) ?? null;
  } else {
    seen.worker = null;
  }
  if (data.error) seen.error = data.error as Task["error"];
  return seen;
}

/** The map forgets whom it has not heard of for longest. */
function put(tasks: Map<string, Seen>, id: string, seen: Seen): void {
  tasks.delete(id);
  tasks.set(id, seen);
  if (tasks.size > MOST_TASKS) tasks.delete(tasks.keys().next().value ?? "");
}

function counted(ended: readonly Bucket[], data: OutlastEvent["data"]): readonly Bucket[] {
  if (data.status !== "completed" && data.status !== "dead") return ended;
  const slot = Math.floor(Date.parse(data.at ?? "") / SLOT_MS);
  const queue = (data.queue as string | undefined) ?? "";
  const newest = ended.at(-1);
  const here = newest?.slot === slot ? newest : { slot, queues: {} };
  const before = here.queues[queue] ?? { completed: 0, dead: 0 };
  const after = { ...before, [data.status]: before[data.status] + 1 };
  const bucket = { slot, queues: { ...here.queues, [queue]: after } };
  const older = newest?.slot === slot ? ended.slice(0, -1) : ended;
  return [...older.filter((one) => one.slot > slot - SLOTS), bucket];
}
