// The story of one task, as its stream tells it. A pure fold over events.

import { exact, type OutlastEvent } from "@outlast/client";
import type { Shapes } from "../api.ts";

export interface Moment {
  at: string;
  kind: string;
  attempt: number;
  text: string;
  /** Cursor of the event: what tells two moments apart. */
  id: string;
}

export interface Story {
  /** What the attempt that counts has put out. */
  output: string;
  /** Output of attempts that failed: it does not count. */
  rolledBack: number;
  progress: Shapes["Progress"] | null;
  moments: readonly Moment[];
  steps: readonly { name: string; at: string; attempt: number }[];
  /** When attempts began. */
  began: Readonly<Record<number, string>>;
  isOver: boolean;
}

export const UNTOLD: Story = {
  output: "", rolledBack: 0, progress: null, moments: [], steps: [], began: {}, isOver: false,
};

const MOST_OUTPUT = 500_000;
const MOST_MOMENTS = 500;

export function tell(story: Story, events: readonly OutlastEvent[]): Story {
  const said: string[] = [story.output];
  const next = { ...story, moments: [...story.moments], steps: [...story.steps], began: { ...story.began } };
  for (const { kind, cursor, data } of events) {
    const at = data.at ?? "";
    const attempt = data.attempt ?? 0;
    if (kind === "chunk") {
      said.push(typeof data.chunk === "string" ? data.chunk : `${exact.stringify(data.chunk)}\n`);
    } else if (kind === "rollback" || kind === "reset") {
      said.length = 0;
      if (kind === "rollback") next.rolledBack += 1;
    } else if (kind === "progress") {
      next.progress = data.progress ?? null;
    } else if (kind === "step") {
      next.steps.push({ name: String(data.step), at, attempt });
    } else if (kind === "state" && data.status === "running") {
      next.began[attempt] = at;
      next.progress = null;
    }
    next.isOver = kind === "done" || (next.isOver && kind !== "state");
    const text = wordsOf(kind, data);
    if (text !== "") next.moments.push({ at, kind, attempt, text, id: cursor });
  }
  next.output = said.join("").slice(-MOST_OUTPUT);
  next.moments = next.moments.slice(-MOST_MOMENTS);
  return next;
}

/** What an attempt did at its end, where its outcome alone is no sentence. */
const ENDS: Record<string, string> = {
  timed_out: "timed out", cancelled: "was cancelled", released: "was given back", waiting: "began to wait",
};

/** An event in words; those that are shown otherwise have none. */
function wordsOf(kind: string, data: OutlastEvent["data"]): string {
  const outcome = data.outcome as string | undefined;
  const error = data.error as { type?: string; message?: string } | null | undefined;
  const wrong = error ? `: ${error.type}: ${error.message}` : "";
  switch (kind) {
    case "state":
      if (data.redriven) return "redriven";
      if (data.status === "running") return `attempt ${data.attempt} began${data.worker ? ` on ${data.worker}` : ""}`;
      return `${data.status}${outcome ? ` after it ${ENDS[outcome] ?? outcome}` : ""}${wrong}`;
    case "done":
      return `${data.status}${data.reason ? ` (${data.reason})` : ""}${data.status === "completed" ? "" : wrong}`;
    case "step":
      return `step ${String(data.step)} is done, for good`;
    case "signal":
      return `signal ${String(data.name)} came`;
    case "question":
      return `asks: ${String(data.question)}`;
    case "rollback":
      return "what the attempt had put out does not count";
    case "overdue":
      return "overdue; the work goes on";
    case "usage":
      return `used ${data.tokens ?? 0} tokens${data.model ? ` of ${String(data.model)}` : ""}`;
    case "alert":
      return String(data.message);
    case "reset":
      return "the log has forgotten what was before";
    default:
      return "";
  }
}
