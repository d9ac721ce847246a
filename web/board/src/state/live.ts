// The connection to the log: it feeds the board, and has what is stale read again.
//
// One snapshot (the queries), then events. A lost connection goes on behind the last event; a page
// that was hidden starts afresh. With no events there are no requests and no repaints.

import { Client, type OutlastEvent } from "@outlast/client";
import type { QueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { base } from "../api.ts";
import { type Board, EMPTY, fold, KINDS, type Seen, TOPICS, type Topic } from "./board.ts";
import { queries } from "./reads.ts";

export type Connection = "connecting" | "live" | "lost" | "hidden";

const FOLD_MS = 50; // a screen that changes more often is not read faster
const READ_MS = 1_000;
const COME_BACK_MS = 2_000;

export class Live {
  board: Board = EMPTY;
  connection: Connection = "connecting";
  readonly #queries: QueryClient;
  readonly #listeners = new Set<() => void>();
  #waiting: OutlastEvent[] = [];
  #folding = false;
  #reading = false;
  #readAt = -READ_MS;
  #cursor: string | undefined;
  #abort = new AbortController();

  constructor(queries: QueryClient) {
    this.#queries = queries;
  }

  /** Follows the log for as long as the page is there. */
  start(): void {
    document.addEventListener("visibilitychange", () => {
      this.#abort.abort();
      if (document.visibilityState === "hidden") return this.#tell("hidden");
      this.#cursor = undefined;
      void this.#follow();
    });
    if (document.visibilityState !== "hidden") void this.#follow();
  }

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  async #follow(): Promise<void> {
    const abort = new AbortController();
    this.#abort = abort;
    const client = new Client({ url: base, fetch: this.#watched(abort) });
    while (!abort.signal.aborted) {
      try {
        const following = { after: this.#cursor, signal: abort.signal };
        for await (const event of client.events({ kinds: KINDS }, following)) this.#hear(event);
      } catch {
        if (abort.signal.aborted) return;
        this.#tell("lost");
        await new Promise((resolve) => setTimeout(resolve, COME_BACK_MS));
      }
    }
  }

  /** The client comes back by itself: its requests tell how the connection is. */
  #watched(abort: AbortController): typeof fetch {
    let opened = 0;
    return async (...asked) => {
      if (opened > 0) this.#tell("lost");
      const reply = await fetch(...asked);
      if (reply.ok && !abort.signal.aborted) {
        opened += 1;
        this.#tell("live");
        // Reads of before the stream began may have missed something, once; later the cursor sees to it.
        if (this.#cursor === undefined) this.#reread(TOPICS);
        // Those that failed while the server was away did not change: no event tells of them.
        void this.#queries.invalidateQueries({ predicate: ({ state }) => state.status === "error" });
      }
      return reply;
    };
  }

  #hear(event: OutlastEvent): void {
    this.#cursor = event.cursor;
    this.#waiting.push(event);
    if (this.#folding) return;
    this.#folding = true;
    setTimeout(this.#fold, FOLD_MS);
  }

  #fold = (): void => {
    this.#folding = false;
    this.board = fold(this.board, this.#waiting);
    this.#waiting = [];
    this.#told();
    if (!this.#reading && this.board.stale.size > 0) this.#readSoon();
  };

  /** At once after a pause, for nobody should wait for a single change; while much happens, once a second. */
  #readSoon(): void {
    this.#reading = true;
    const pauseMs = Math.max(0, this.#readAt + READ_MS - performance.now());
    setTimeout(() => {
      this.#reading = false;
      this.#readAt = performance.now();
      // Who is still being read is read again behind that: a slow engine is not asked faster.
      const busy = [...this.board.stale].filter((topic) => this.#queries.isFetching({ queryKey: [topic] }) > 0);
      const free = [...this.board.stale].filter((topic) => !busy.includes(topic));
      this.board = { ...this.board, stale: new Set(busy) };
      this.#reread(free);
      if (busy.length > 0) this.#readSoon();
    }, pauseMs);
  }

  #reread(topics: readonly Topic[]): void {
    for (const topic of topics) void this.#queries.invalidateQueries({ queryKey: [topic] });
  }

  #tell(connection: Connection): void {
    if (this.connection === connection) return;
    this.connection = connection;
    this.#told();
  }

  #told(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** There is one connection for the whole page. */
const live = new Live(queries);

export const startLive = (): void => live.start();

export const useBoard = (): Board => useSyncExternalStore(live.subscribe, () => live.board);

export const useConnection = (): Connection => useSyncExternalStore(live.subscribe, () => live.connection);

/** What the log has told of one task. */
export const useSeen = (id: string): Seen | undefined =>
  useSyncExternalStore(live.subscribe, () => live.board.tasks.get(id));
