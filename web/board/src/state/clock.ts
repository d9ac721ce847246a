// One clock for all that ticks: once a second, only while something that ticks can be seen.

import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;
let skew = 0;

/** The server's time, as far as this page knows. */
export const now = (): number => Date.now() + skew;

/** What the server's clock showed just now. */
export function heard(at: string | null): void {
  if (at !== null) skew = Date.parse(at) - Date.now();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    if (document.visibilityState === "visible") for (const tell of listeners) tell();
  }, 1_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** A text that depends on the time; painted anew only when it changes. */
export function useTicking(text: (now: number) => string): string {
  return useSyncExternalStore(subscribe, () => text(now()));
}
