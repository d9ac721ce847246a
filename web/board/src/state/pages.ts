// A list that is read page by page, newest first, and stays true while it is looked at. Pure.
//
// When the log moves only the first page is read again and laid over what is there: a list that
// someone has scrolled far down costs no more than one that was just opened.

import type { Task } from "@outlast/client";

export interface Pages {
  tasks: readonly Task[];
  /** Behind the last one, while there are more. */
  next: string | null;
}

/** The pages after their first one was read anew: what came behind it stays. */
export function refreshed(old: Pages, first: Pages): Pages {
  if (first.next === null) return first;
  const ids = new Set(first.tasks.map((task) => task.id));
  const edge = old.tasks.findLastIndex((task) => ids.has(task.id));
  const tail = old.tasks.slice(edge + 1);
  return edge >= 0 && tail.length > 0 ? { tasks: [...first.tasks, ...tail], next: old.next } : first;
}
