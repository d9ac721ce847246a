// The pages of a filter: the first one is kept true, the others come when they are scrolled to.

import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useReducer, useRef } from "react";
import { client } from "../api.ts";
import { type Pages, refreshed } from "./pages.ts";

const FIRST = 100;
const MORE = 500;
const NONE: Pages = { tasks: [], next: null };

export function useTaskPages(filter: string) {
  const [pages, put] = useReducer((_: Pages, now: Pages) => now, NONE);
  const held = useRef(NONE);
  const reading = useRef(false);
  const read = useQuery({
    queryKey: ["tasks", "list", filter],
    queryFn: async () => {
      const page = await client.page({ ...(filter ? { q: filter } : {}), limit: FIRST });
      return { filter, tasks: page.items, next: page.next } as Pages & { filter: string };
    },
    gcTime: 0,
  });
  const shown = useRef<string>(undefined); // nothing yet
  useEffect(() => {
    if (read.data === undefined) return;
    held.current = shown.current === filter ? refreshed(held.current, read.data) : read.data;
    shown.current = filter;
    put(held.current);
  }, [read.data, filter]);
  const more = useCallback(async () => {
    const { next } = held.current;
    if (next === null || reading.current) return;
    reading.current = true;
    try {
      const page = await client.page({ ...(filter ? { q: filter } : {}), limit: MORE, cursor: next });
      if (held.current.next !== next || shown.current !== filter) return; // the list has changed
      held.current = { tasks: [...held.current.tasks, ...page.items], next: page.next };
      put(held.current);
    } finally {
      reading.current = false;
    }
  }, [filter]);
  const isShown = shown.current === filter;
  const isReading = !isShown && read.error === null;
  return { ...pages, error: read.error, isShown, isReading, again: read.refetch, more };
}
