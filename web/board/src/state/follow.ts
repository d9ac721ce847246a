// Following one task: its stream, folded into its story. A lost connection goes on behind the last
// event, and so does a page that was hidden: a browser has few connections for all of its tabs.
// A task that was redriven is followed again.

import type { Client, OutlastEvent } from "@outlast/client";
import { useEffect, useState } from "react";
import { type Story, tell, UNTOLD } from "./story.ts";

const FOLD_MS = 50;
const COME_BACK_MS = 2_000;

/** The story so far. `lives`: the record says that it is not over. */
export function useStory(client: Client, id: string, lives: boolean): Story {
  const [held, hold] = useState({ story: UNTOLD, cursor: undefined as string | undefined });
  const again = lives && held.story.isOver;
  useEffect(() => {
    let abort = new AbortController();
    let waiting: OutlastEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    let { cursor } = held;
    let isOver = false;
    const fold = () => {
      timer = undefined;
      const events = waiting;
      waiting = [];
      hold((before) => ({ story: tell(before.story, events), cursor: events.at(-1)?.cursor ?? before.cursor }));
    };
    const follow = async ({ signal }: AbortController) => {
      while (!signal.aborted) {
        try {
          for await (const event of client.stream(id, { after: cursor, signal })) {
            if (signal.aborted) return; // whoever follows now hears it
            cursor = event.cursor;
            waiting.push(event);
            timer ??= setTimeout(fold, FOLD_MS);
          }
          isOver = true;
          return;
        } catch {
          if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, COME_BACK_MS));
        }
      }
    };
    const look = () => {
      abort.abort();
      if (isOver || document.visibilityState === "hidden") return;
      abort = new AbortController();
      void follow(abort);
    };
    document.addEventListener("visibilitychange", look);
    look();
    return () => {
      document.removeEventListener("visibilitychange", look);
      abort.abort();
      clearTimeout(timer);
    };
    // `held` is where the effect begins, not what it follows.
  }, [client, id, again]);
  return held.story;
}
