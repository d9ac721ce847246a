// Requests: typed by the OpenAPI document, repeated when that is safe and worth it.

import { ApiError, errorOf, Unreachable } from "./errors.ts";
import type { paths } from "./schema.ts";

export type Method = "get" | "post" | "put" | "delete";
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [K in M]: infer Op } ? (Op extends undefined ? never : P) : never;
}[keyof paths];

type Operation<P extends keyof paths, M extends Method> = paths[P][M];
type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : never;

/** What a call takes in its body. */
export type BodyOf<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { requestBody?: infer R } ? Json<NonNullable<R>> : never;
/** What a call takes in its query. */
export type QueryOf<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;
/** What a call answers. */
export type AnswerOf<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { responses: infer R }
    ? R extends { 202: infer Reply } ? Json<Reply>
    : R extends { 201: infer Reply } ? Json<Reply>
    : R extends { 200: infer Reply } ? Json<Reply>
    : undefined
    : never;

export interface Asked {
  /** The parts of the path: `{ task_id: "…" }`. */
  path?: Record<string, string>;
  query?: Record<string, string | number | undefined>;
  headers?: Record<string, string>;
  body?: unknown;
  /** It may be sent twice: when the reply got lost, nobody knows whether it was done. */
  again?: boolean;
  /** How long the server may take on purpose. */
  waitMs?: number;
  signal?: AbortSignal | undefined;
}

export interface LinkOptions {
  /** Where the server is; in a browser, by default, where the page is from. */
  url?: string;
  /** An API key or a session token. */
  key?: string;
  /** For each request, besides what the server may wait on purpose. */
  timeoutMs?: number;
  /** How often a call is repeated that may be. */
  retries?: number;
  fetch?: typeof fetch;
  /** What reads and writes bodies and events: `exact` keeps numbers that `JSON` would round. */
  json?: { parse: (text: string) => unknown; stringify: (value: unknown) => string };
}

const PATIENT_RETRIES = 8; // about twenty seconds, in which a server starts again
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;
const LONGEST_WAIT_MS = 60_000;

/** Where the server is, who asks, and when to ask again. */
export class Link {
  readonly url: string;
  readonly json: NonNullable<LinkOptions["json"]>;
  readonly #key: string | undefined;
  readonly #timeoutMs: number;
  readonly #retries: number;
  readonly #fetch: typeof fetch;

  constructor(options: LinkOptions = {}) {
    const page = typeof location === "undefined" ? "http://127.0.0.1:5278" : location.origin;
    this.url = (options.url ?? page).replace(/\/+$/, "");
    this.json = options.json ?? JSON;
    this.#key = options.key;
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.#retries = options.retries ?? 3;
    this.#fetch = options.fetch ?? ((...args) => fetch(...args));
  }

  /** One call; its answer, or an `ApiError`. */
  async call<M extends Method, P extends PathOf<M>>(
    method: M,
    path: P,
    asked: Asked = {},
  ): Promise<AnswerOf<P, M>> {
    for (let tries = 0; ; tries += 1) {
      try {
        const limit = AbortSignal.timeout(this.#timeoutMs + (asked.waitMs ?? 0));
        const reply = await this.send(method, path, asked, limit);
        const text = await reply.text();
        return (text === "" ? undefined : this.json.parse(text)) as AnswerOf<P, M>;
      } catch (error) {
        const again = asked.again ?? method === "get";
        await this.pause(error, tries, { again, patient: asked.waitMs !== undefined, signal: asked.signal });
      }
    }
  }

  /** The answer, not yet read. */
  async send(method: Method, path: string, asked: Asked, limit?: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = { accept: "application/json", ...asked.headers };
    if (this.#key !== undefined) headers.authorization = `Bearer ${this.#key}`;
    if (asked.body !== undefined) headers["content-type"] = "application/json";
    const signals = [limit, asked.signal].filter((signal) => signal !== undefined);
    const reply = await this.#fetch(this.url + filled(path, asked.path) + queryOf(asked.query), {
      method: method.toUpperCase(),
      headers,
      redirect: "error",
      ...(asked.body === undefined ? {} : { body: this.json.stringify(asked.body) }),
      ...(signals.length > 0 ? { signal: AbortSignal.any(signals) } : {}),
    });
    if (!reply.ok) throw await errorOf(reply);
    return reply;
  }

  /** Waits before the next try; throws what happened when there is to be none. */
  async pause(
    error: unknown,
    tries: number,
    { again, patient, signal }: { again: boolean; patient: boolean; signal: AbortSignal | undefined },
  ): Promise<void> {
    signal?.throwIfAborted();
    const refusal = error instanceof ApiError ? error : undefined;
    const isLost = error instanceof TypeError || (error as Error).name === "TimeoutError";
    if (refusal === undefined && !isLost) throw error;
    const isBusy = refusal === undefined || [502, 503, 504].includes(refusal.status);
    const worth = refusal?.status === 429 || (again && isBusy); // 429: nothing was done
    const most = patient && this.#retries > 0 ? Math.max(this.#retries, PATIENT_RETRIES) : this.#retries;
    if (!worth || tries >= most) {
      if (refusal !== undefined) throw refusal;
      throw new Unreachable(`${this.url} does not answer: ${reasonOf(error)}`, { cause: error });
    }
    const usual = Math.min(FIRST_PAUSE_MS * 2 ** tries, LONGEST_PAUSE_MS) * (0.5 + Math.random());
    const told = refusal?.retryAfterMs;
    await sleep(told === undefined ? usual : Math.min(told, LONGEST_WAIT_MS), signal);
  }
}

/** An id that nobody else makes. A page that came over plain HTTP has no `crypto.randomUUID`. */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const over = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", over);
      resolve();
    }, ms);
    signal?.addEventListener("abort", over, { once: true });
  });
}

function filled(path: string, parts: Record<string, string> = {}): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(parts[name] ?? ""));
}

function queryOf(query: Asked["query"] = {}): string {
  const told = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(told.map(([name, value]) => [name, String(value)])).toString();
  return text === "" ? "" : `?${text}`;
}

function reasonOf(error: unknown): string {
  const { message, cause } = error as Error;
  return cause instanceof Error && cause.message ? cause.message : message;
}
