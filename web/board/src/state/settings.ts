// What this browser remembers: theme, time zone, saved views. Nothing that is secret.

import { useSyncExternalStore } from "react";

export interface View {
  name: string;
  q: string;
}

interface Settings {
  theme: "system" | "light" | "dark";
  utc: boolean;
  views: readonly View[];
}

const PLACE = "outlast.board";
const STANDARD: Settings = { theme: "system", utc: false, views: [] };
const listeners = new Set<() => void>();
let settings = read();

function read(): Settings {
  try {
    return { ...STANDARD, ...(JSON.parse(localStorage.getItem(PLACE) ?? "{}") as Partial<Settings>) };
  } catch {
    return STANDARD; // somebody else's text, or a browser that remembers nothing
  }
}

export function keep(change: Partial<Settings>): void {
  settings = { ...settings, ...change };
  try {
    localStorage.setItem(PLACE, JSON.stringify(settings));
  } catch {
    // it holds until the page is closed
  }
  dress();
  for (const listener of listeners) listener();
}

/** The theme, on the document: the style sheet has the colours. */
export function dress(): void {
  document.documentElement.dataset.theme = settings.theme;
}

export function useSettings(): Settings {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => settings,
  );
}
