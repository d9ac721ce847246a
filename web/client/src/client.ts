// A server, as a program sees it.

import { TaskFailed, WaitTimeout } from "./errors.ts";
import { messages, Silence } from "./live.ts";
import type { components } from "./schema.ts";
import { frames } from "./sse.ts";
import { type AnswerOf, type BodyOf, Link, type LinkOptions, type QueryOf, randomId, sleep } from "./wire.ts";

type Shapes = components["schemas"];
export type Task = Shapes["Task"];
export type Enqueued = Shapes["Enqueued"];
export type Notice = Shapes["Notice"];
export type Json = unknown;
/** What may be said about a task besides its type and payload. */
export type Options = Omit<Shapes["NewTask"], "type" | "payload">;
export type Filters = QueryOf<"/api/v1/tasks", "get">;
export type Action = Shapes["Bulk"]["action"];

/** Something that happened. */
export interface OutlastEvent {
  /** `state`, `progress`, `chunk`, `step`, `signal`, `rollback`, `overdue`, `reset`, `done`, … */
  kind: string;
  /** Where to go on: `stream(id, { after: cursor })`. */
  cursor: string;
  data: {
    task_id?: string | null;
    attempt?: number;
    at?: string | null;
    status?: Task["status"];
    progress?: Shapes["Progress"];
    chunk?: Json;
    result?: Json;
    [field: string]: unknown;
  };
}

export interface Following {
  after?: string | undefined;
  signal?: AbortSignal | undefined;
}

export interface Waiting {
  timeoutMs?: number;
  signal?: AbortSignal;
}

export interface ClientOptions extends LinkOptions {
  /** For sockets where the platform has none: `ws` in Node 20. */
  WebSocket?: typeof WebSocket;
}

const LONG_POLL_S = 20;
const FINAL: readonly string[] = ["completed", "cancelled", "dead"];

/**
 * A server. Every call of its API is `client.link.call("get", "/api/v1/…", { … })`, typed; the
 * methods are those that most programs need.
 */
export class Client {
  readonly link: Link;
  readonly #WebSocket: typeof WebSocket | undefined;

  constructor(options: ClientOptions = {}) {
    this.link = new Link(options);
    this.#WebSocket = options.WebSocket ?? globalThis.WebSocket;
  }

  // Tasks ---------------------------------------------------------------------------------------

  /** Hand over a task. It is made once, also when it has to be sent again. */
  enqueue(type: string, payload: Record<string, Json> = {}, options: Options = {}): Promise<Enqueued> {
    const keyed = options.id == null && options.unique_key == null;
    return this.link.call("post", "/api/v1/tasks", {
      body: { type, payload, ...options },
      headers: keyed ? idempotent() : {},
      // A unique key is taken by living tasks only: a repetition may come when it is free again.
      again: keyed || options.id != null || options.unique_for != null,
    });
  }

  /** Hand over up to 1,000 tasks, all of them or none; answered in order. */
  async enqueueMany(tasks: Shapes["NewTask"][]): Promise<Enqueued[]> {
    const again = tasks.every((task) => task.unique_key == null || task.unique_for != null);
    const asked = { body: { tasks }, headers: idempotent(), again };
    return (await this.link.call("post", "/api/v1/tasks/batch", asked)).items;
  }

  get(id: string): Promise<Task> {
    return this.link.call("get", "/api/v1/tasks/{task_id}", { path: { task_id: id } });
  }

  /** The record of a task once it is over; `WaitTimeout` when that takes longer. */
  async wait(id: string, { timeoutMs, signal }: Waiting = {}): Promise<Task> {
    const end = timeoutMs === undefined ? undefined : performance.now() + timeoutMs;
    for (;;) {
      const left = end === undefined ? LONG_POLL_S : Math.max(end - performance.now(), 0) / 1000;
      const waitS = Math.min(Math.ceil(left), LONG_POLL_S);
      const task = await this.link.call("get", "/api/v1/tasks/{task_id}", {
        path: { task_id: id },
        headers: waitS > 0 ? { prefer: `wait=${waitS}` } : {},
        waitMs: waitS * 1000,
        signal,
      });
      if (FINAL.includes(task.state)) return task;
      if (end !== undefined && performance.now() >= end) {
        throw new WaitTimeout(`Task ${id} is ${task.status} after ${timeoutMs} ms; it goes on.`);
      }
    }
  }

  /** What came out of a task; `TaskFailed` when it died or was cancelled. */
  async result<T = Json>(id: string, waiting: Waiting = {}): Promise<T> {
    const task = await this.wait(id, waiting);
    if (task.state !== "completed") throw new TaskFailed(task);
    return task.result as T;
  }

  /** The one thing that a task waits for; where the time went, for one that is over. */
  why(id: string): Promise<Shapes["Why"]> {
    return this.link.call("get", "/api/v1/tasks/{task_id}/why", { path: { task_id: id } });
  }

  /** Run a task again that is dead, cancelled or retrying, with another payload if you like. */
  retry(id: string, payload?: Record<string, Json>): Promise<Task> {
    return this.link.call("post", "/api/v1/tasks/{task_id}/retry", {
      path: { task_id: id },
      ...(payload === undefined ? {} : { body: { payload } }),
    });
  }

  /** What a task remembers, and the signals it was sent. */
  steps(id: string): Promise<Shapes["Steps"]> {
    return this.link.call("get", "/api/v1/tasks/{task_id}/steps", { path: { task_id: id } });
  }

  /** Run a task that is over again, as a new one, from a step or from its first line. */
  rerun(id: string, from: Shapes["Rerun"] = {}): Promise<Task> {
    const asked = { path: { task_id: id }, body: from };
    return this.link.call("post", "/api/v1/tasks/{task_id}/rerun", asked);
  }

  cancel(id: string, reason = "cancelled"): Promise<Task> {
    const asked = { path: { task_id: id }, body: { reason } };
    return this.link.call("post", "/api/v1/tasks/{task_id}/cancel", asked);
  }

  /** Send a signal to a task that waits for it, now or later. */
  signal(id: string, name: string, data: Json = null): Promise<Task> {
    const asked = { path: { task_id: id, name }, body: data };
    return this.link.call("post", "/api/v1/tasks/{task_id}/signal/{name}", asked);
  }

  async delete(id: string): Promise<void> {
    await this.link.call("delete", "/api/v1/tasks/{task_id}", { path: { task_id: id } });
  }

  // Workflows, approvals ------------------------------------------------------------------------

  /** Hand over a graph, whole or not at all; `{ $from: "node" }` stands for a node's result. */
  enqueueWorkflow(graph: Shapes["NewWorkflow"]): Promise<Shapes["EnqueuedWorkflow"]> {
    const headers = graph.id == null ? idempotent() : {};
    return this.link.call("post", "/api/v1/workflows", { body: graph, headers, again: true });
  }

  /** A workflow with its nodes, their edges and states. */
  workflow(id: string): Promise<Shapes["Workflow"]> {
    return this.link.call("get", "/api/v1/workflows/{workflow_id}", { path: { workflow_id: id } });
  }

  /** Stop a workflow and undo what it did; or stop one node, and what comes after it. */
  cancelWorkflow(
    id: string,
    { reason = "cancelled", from = null }: Shapes["CancelWorkflow"] = {},
  ): Promise<Shapes["WorkflowItem"]> {
    const asked = { path: { workflow_id: id }, body: { reason, from } };
    return this.link.call("post", "/api/v1/workflows/{workflow_id}/cancel", asked);
  }

  /** Go on where it died; or run it again from a node, as a new workflow, which is the answer. */
  retryWorkflow(id: string, from: string | null = null): Promise<Shapes["WorkflowItem"]> {
    const asked = { path: { workflow_id: id }, body: { from } };
    return this.link.call("post", "/api/v1/workflows/{workflow_id}/retry", asked);
  }

  /** Open questions of tasks to people. */
  approvals(filters: QueryOf<"/api/v1/approvals", "get"> = {}): Promise<Shapes["ApprovalPage"]> {
    return this.link.call("get", "/api/v1/approvals", { query: filters });
  }

  /** Answer what a task asks now. */
  respond(id: string, answer: Json): Promise<Task> {
    const asked = { path: { task_id: id }, body: { answer } };
    return this.link.call("post", "/api/v1/approvals/{task_id}", asked);
  }

  /** How many tasks a bulk would change. */
  async matching(action: Action, filter: string): Promise<number> {
    const body = { action, filter, dry_run: true };
    return (await this.link.call("post", "/api/v1/tasks/bulk", { body, again: true })).matched;
  }

  /** Retry, cancel or delete all tasks that fit a filter. A task does it: wait for that one. */
  bulk(action: Action, filter: string, rate?: string): Promise<AnswerOf<"/api/v1/tasks/bulk", "post">> {
    return this.link.call("post", "/api/v1/tasks/bulk", { body: { action, filter, rate } });
  }

  /** One page of tasks, newest first. */
  page(filters: Filters = {}): Promise<Shapes["TaskPage"]> {
    return this.link.call("get", "/api/v1/tasks", { query: filters });
  }

  /** All tasks that fit, newest first. */
  tasks(filters: Filters = {}): AsyncGenerator<Task, void, void> {
    return pages((cursor) => this.page({ ...filters, ...cursor }));
  }

  // Streams -------------------------------------------------------------------------------------

  /** The events of a task until it is over. A broken connection goes on where it was. */
  stream(id: string, following: Following = {}): AsyncGenerator<OutlastEvent, void, void> {
    const asked = { path: { task_id: id } };
    return this.#follow("/api/v1/tasks/{task_id}/stream", asked, following, true);
  }

  /** The events of all tasks, from now on or behind a cursor, for ever. */
  events(
    filters: { kinds?: string[]; session_id?: string; workflow_id?: string } = {},
    following: Following = {},
  ): AsyncGenerator<OutlastEvent, void, void> {
    const query = { ...filters, kinds: filters.kinds?.join(",") };
    return this.#follow("/api/v1/events", { query }, following, false);
  }

  async *#follow(
    path: string,
    asked: { path?: Record<string, string>; query?: Record<string, string | undefined> },
    { after, signal }: Following,
    untilDone: boolean,
  ): AsyncGenerator<OutlastEvent, void, void> {
    const patiently = { again: true, patient: true, signal };
    let cursor = after;
    for (let failures = 0; ; failures += 1) {
      const silence = new Silence();
      try {
        const headers: Record<string, string> = { accept: "text/event-stream" };
        if (cursor) headers["last-event-id"] = cursor;
        const reply = await this.link.send("get", path, { ...asked, headers, signal }, silence.signal);
        if (reply.status === 204 || reply.body === null) return; // nothing will come any more
        const heard = reply.body.pipeThrough(silence.listener());
        for await (const { kind, id, data } of frames(heard)) {
          cursor = id ?? cursor;
          if (data === undefined) continue;
          failures = 0;
          yield { kind, cursor: cursor ?? "", data: this.link.json.parse(data) as OutlastEvent["data"] };
          if (untilDone && kind === "done") return;
        }
        await this.link.pause(new TypeError("the stream ended early"), failures, patiently);
      } catch (error) {
        await this.link.pause(error, failures, patiently);
      } finally {
        silence.end();
      }
    }
  }

  // Operating -----------------------------------------------------------------------------------

  health(): Promise<Shapes["Health"]> {
    return this.link.call("get", "/api/v1/health");
  }

  queues(): Promise<Shapes["Queues"]> {
    return this.link.call("get", "/api/v1/queues/status");
  }

  pause(queue: string): Promise<Shapes["Paused"]> {
    return this.link.call("post", "/api/v1/queues/{name}/pause", { path: { name: queue }, again: true });
  }

  resume(queue: string): Promise<Shapes["Paused"]> {
    return this.link.call("post", "/api/v1/queues/{name}/resume", { path: { name: queue }, again: true });
  }

  /** Dead tasks by what killed them, the most frequent first. */
  async deadGroups(): Promise<Shapes["DeadGroup"][]> {
    const asked = { query: { group_by: "fingerprint" } };
    const page = await this.link.call("get", "/api/v1/queues/dlq", asked);
    return (page as Shapes["DeadGroupPage"]).items;
  }

  async workers(): Promise<Shapes["Worker"][]> {
    return (await this.link.call("get", "/api/v1/workers")).items;
  }

  drainWorker(worker: string): Promise<Shapes["Worker"]> {
    return this.link.call("post", "/api/v1/workers/{worker_id}/drain", { path: { worker_id: worker }, again: true });
  }

  limits(): Promise<Shapes["LimitPage"]> {
    return this.link.call("get", "/api/v1/limits");
  }

  setLimit(key: string, limit: BodyOf<"/api/v1/limits/{key}", "put">): Promise<Shapes["Limit"]> {
    return this.link.call("put", "/api/v1/limits/{key}", { path: { key }, body: limit, again: true });
  }

  resetLimit(key: string): Promise<Shapes["Limit"]> {
    return this.link.call("post", "/api/v1/limits/{key}/reset", { path: { key }, again: true });
  }

  async deleteLimit(key: string): Promise<void> {
    await this.link.call("delete", "/api/v1/limits/{key}", { path: { key } });
  }

  async types(): Promise<Shapes["TaskType"][]> {
    return (await this.link.call("get", "/api/v1/types")).items;
  }

  // End users -----------------------------------------------------------------------------------

  /** All tasks of a session that fit, newest first. */
  sessionTasks(session: string, filters: Omit<Filters, "session_id"> = {}): AsyncGenerator<Task, void, void> {
    const path = { session_id: session };
    return pages((cursor) =>
      this.link.call("get", "/api/v1/sessions/{session_id}/tasks", { path, query: { ...filters, ...cursor } }),
    );
  }

  /** What the session has not acknowledged, oldest first; from the beginning, or behind the `next` of another page. */
  notifications(session: string, cursor?: string): Promise<Shapes["NoticePage"]> {
    const asked = { path: { session_id: session }, query: { cursor } };
    return this.link.call("get", "/api/v1/sessions/{session_id}/notifications", asked);
  }

  /** Notifications have arrived; answers those that were not acknowledged before. */
  async acknowledge(session: string, ids: string[]): Promise<string[]> {
    const asked = { path: { session_id: session }, body: { ids }, again: true };
    const path = "/api/v1/sessions/{session_id}/notifications/ack";
    return (await this.link.call("post", path, asked)).acknowledged;
  }

  preferences(session: string): Promise<Shapes["Preferences"]> {
    const asked = { path: { session_id: session } };
    return this.link.call("get", "/api/v1/sessions/{session_id}/preferences", asked);
  }

  setPreferences(session: string, wanted: Shapes["Preferences"]): Promise<Shapes["Preferences"]> {
    const asked = { path: { session_id: session }, body: wanted, again: true };
    return this.link.call("put", "/api/v1/sessions/{session_id}/preferences", asked);
  }

  /** A token for an end user: it opens the tasks of this session only. */
  token(session: string, options: Shapes["NewToken"] = {}): Promise<Shapes["Token"]> {
    const asked = { path: { session_id: session }, body: options, again: true };
    return this.link.call("post", "/api/v1/sessions/{session_id}/token", asked);
  }

  /**
   * Notifications over a socket, as they come, each once; the socket is opened again when it
   * breaks. Acknowledge those that have arrived: others come again, the next time.
   */
  async *notices(session: string, signal?: AbortSignal): AsyncGenerator<Notice, void, void> {
    const Socket = this.#WebSocket;
    if (Socket === undefined) {
      throw new TypeError("There is no WebSocket here: give the client one, as { WebSocket }.");
    }
    const seen = new Set<string>();
    for (let failures = 0; ; failures += 1) {
      const path = { session_id: session };
      const asked = { path, again: true, signal };
      const { ticket } = await this.link.call("post", "/api/v1/sessions/{session_id}/ticket", asked);
      const place = `/api/v1/sessions/${encodeURIComponent(session)}/ws?ticket=${ticket}`;
      for await (const text of messages(new Socket(this.link.url.replace(/^http/, "ws") + place), signal)) {
        const told = JSON.parse(text) as Partial<Notice>;
        if (told.notification_id === undefined || seen.has(told.notification_id)) continue;
        seen.add(told.notification_id);
        failures = 0;
        yield told as Notice;
      }
      if (signal?.aborted) return;
      await sleep(Math.min(200 * 2 ** failures, 5_000), signal);
    }
  }

  // Working -------------------------------------------------------------------------------------

  /** Take tasks to work on; call `heartbeat` every 3 s, and end each. */
  async claim(
    claim: Shapes["NewClaim"],
    signal?: AbortSignal,
  ): Promise<Shapes["LeasedTask"][]> {
    const body = { token: randomId(), ...claim }; // a repetition gets the same leases
    const waitMs = (claim.wait ?? 0) * 1000;
    return (await this.link.call("post", "/api/v1/leases", { body, again: true, waitMs, signal })).items;
  }

  /** Keep a lease, and those taken with it. Stop when `cancel` is set, and on `isLeaseLost`. */
  heartbeat(lease: string): Promise<Shapes["Kept"]> {
    return this.link.call("post", "/api/v1/leases/{lease}/heartbeat", { path: { lease }, again: true });
  }

  progress(lease: string, body: Shapes["NewProgress"]): Promise<Shapes["Kept"]> {
    return this.link.call("post", "/api/v1/leases/{lease}/progress", { path: { lease }, body, again: true });
  }

  emit(lease: string, chunk: Json): Promise<Shapes["Kept"]> {
    return this.link.call("post", "/api/v1/leases/{lease}/emit", { path: { lease }, body: { chunk } });
  }

  complete(lease: string, result: Json = null): Promise<Shapes["Ended"]> {
    const asked = { path: { lease }, body: { result }, again: true };
    return this.link.call("post", "/api/v1/leases/{lease}/complete", asked);
  }

  fail(lease: string, failure: Shapes["NewFailure"] = {}): Promise<Shapes["Ended"]> {
    const asked = { path: { lease }, body: failure, again: true };
    return this.link.call("post", "/api/v1/leases/{lease}/fail", asked);
  }

  release(lease: string): Promise<Shapes["Ended"]> {
    return this.link.call("post", "/api/v1/leases/{lease}/release", { path: { lease }, again: true });
  }
}

async function* pages(
  read: (cursor: { cursor?: string }) => Promise<Shapes["TaskPage"]>,
): AsyncGenerator<Task, void, void> {
  let cursor: { cursor?: string } = {};
  for (;;) {
    const page = await read(cursor);
    yield* page.items;
    if (page.next === null) return;
    cursor = { cursor: page.next };
  }
}

function idempotent(): Record<string, string> {
  return { "idempotency-key": `"${randomId()}"` };
}

