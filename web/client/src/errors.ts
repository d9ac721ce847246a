// What a server refuses, as exceptions.

import type { components } from "./schema.ts";

export type Problem = components["schemas"]["Problem"];

/** A server refused, or failed. `code` is stable and for programs, `message` is for people. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly code: string;
  readonly title: string;
  /** The part of the request that is wrong, where there is one. */
  readonly field: string | undefined;
  /** When to come back, where the server says so. */
  readonly retryAfterMs: number | undefined;

  constructor(problem: Problem, retryAfterMs?: number) {
    super(problem.detail);
    this.status = problem.status;
    this.code = problem.code;
    this.title = problem.title;
    this.field = problem.field || undefined;
    this.retryAfterMs = retryAfterMs;
  }

  get isNotFound(): boolean {
    return this.status === 404;
  }

  /** The lease is another's now, or over: stop working on the task. */
  get isLeaseLost(): boolean {
    return this.code === "lease_lost";
  }
}

/** There is no server there, or the connection to it broke. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";
}

/** The awaited task died or was cancelled. */
export class TaskFailed extends Error {
  override readonly name = "TaskFailed";
  readonly task: components["schemas"]["Task"];

  constructor(task: components["schemas"]["Task"]) {
    const error = task.error && task.status === "dead" ? `: ${task.error.type}: ${task.error.message}` : "";
    super(`Task ${task.id} is ${task.status} (${task.reason ?? "no reason recorded"})${error}`);
    this.task = task;
  }
}

/** The wait is over, the task is not: it goes on, and can be waited for again. */
export class WaitTimeout extends Error {
  override readonly name = "WaitTimeout";
}

export async function errorOf(reply: Response): Promise<ApiError> {
  const text = await reply.text();
  const seconds = Number(reply.headers.get("retry-after") ?? Number.NaN);
  const retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : undefined;
  return new ApiError(problemOf(text) ?? proxied(reply), retryAfterMs);
}

function problemOf(text: string): Problem | undefined {
  try {
    const told: unknown = JSON.parse(text);
    const isProblem = typeof told === "object" && told !== null && "detail" in told && "code" in told;
    return isProblem ? (told as Problem) : undefined;
  } catch {
    return undefined;
  }
}

/** A proxy in between has answered. */
function proxied({ status, statusText }: Response): Problem {
  const detail = `The answer was ${status} ${statusText}, and is none of Outlast's.`;
  return { type: "about:blank", title: statusText, status, detail, code: "error" };
}
