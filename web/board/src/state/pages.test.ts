import { expect, test } from "vitest";
import type { Task } from "../api.ts";
import { type Pages, refreshed } from "./pages.ts";

const page = (ids: number[], next: string | null): Pages => ({ tasks: ids.map((id) => ({ id: String(id) }) as Task), next });
const ids = ({ tasks }: Pages): number[] => tasks.map((task) => Number(task.id));

test("new ones come on top, and what was read behind stays", () => {
  const now = refreshed(page([9, 8, 7, 6, 5, 4], "c4"), page([11, 10, 9], "c9"));
  expect(ids(now)).toEqual([11, 10, 9, 8, 7, 6, 5, 4]);
  expect(now.next).toBe("c4");
});

test("what fits no more leaves the first page", () => {
  expect(ids(refreshed(page([9, 8, 7, 6], "c6"), page([9, 7], "c7")))).toEqual([9, 7, 6]);
});

test("where there is a gap it begins anew", () => {
  expect(ids(refreshed(page([9, 8], "c8"), page([30, 29], "c29")))).toEqual([30, 29]);
});

test("a first page that is all there is, is all there is", () => {
  expect(ids(refreshed(page([9, 8, 7], "c7"), page([9], null)))).toEqual([9]);
});
